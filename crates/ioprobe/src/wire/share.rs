//! How much of what a stream writes is random: `zeros`, `random`, `50 % random`.

use serde_json::Value;

use super::FromJson;

/// The share of each page that is random, where the rest is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub percent: u8,
}

impl Share {
    pub const ZEROS: Share = Share { percent: 0 };
}

impl FromJson for Share {
    const WANTED: &'static str = "\"zeros\", \"random\" or a share such as \"50 % random\"";

    fn from_json(value: &Value) -> Option<Self> {
        let percent = match value.as_str()? {
            "zeros" => 0,
            "random" => 100,
            share => {
                let digits = share.strip_suffix(" % random")?;
                let plain = digits.bytes().all(|digit| digit.is_ascii_digit());
                digits.parse().ok().filter(|_| plain)?
            }
        };
        (percent <= 100).then_some(Share { percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_share_is_a_whole_number_of_percent() {
        let share = |text: &str| Share::from_json(&json!(text)).map(|share| share.percent);
        assert_eq!(
            [share("zeros"), share("random"), share("7 % random")],
            [Some(0), Some(100), Some(7)]
        );
        for wrong in [
            "",
            "50",
            "50%",
            "+5 % random",
            "101 % random",
            "256 % random",
            " % random",
        ] {
            assert_eq!(share(wrong), None, "{wrong}");
        }
    }
}

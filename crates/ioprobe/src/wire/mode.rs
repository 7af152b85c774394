//! File modes in octal text.

use serde_json::Value;

use super::FromJson;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(pub u32);

impl FromJson for Mode {
    const WANTED: &'static str = "a mode in octal such as \"0644\"";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?;
        let octal = !text.is_empty() && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        let mode = u32::from_str_radix(text, 8).ok()?;
        (octal && mode <= 0o7777).then_some(Mode(mode))
    }
}

pub fn mode_text(mode: u32) -> String {
    format!("{:04o}", mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn modes_are_octal_text() {
        let mode = |text: &str| Mode::from_json(&json!(text)).map(|m| m.0);
        assert_eq!(mode("0444"), Some(0o444));
        assert_eq!(mode("1777"), Some(0o1777));
        assert_eq!([mode("9"), mode(""), mode("+7"), mode("17777")], [None; 4]);
        assert_eq!(mode_text(0o100_444), "0444");
    }
}

//! Five benchmarks of some ten microseconds to some hundred, fifteen repeats each, printed as google-benchmark prints them.
//! The argument multiplies the work of the second, so that a slowdown of known size can be planted.

use std::hint::black_box;
use std::time::Instant;

const BENCHMARKS: [(&str, u64, fn(u64) -> u64); 5] = [
    ("lcg", 150_000, lcg),
    ("xorshift", 100_000, xorshift),
    ("table", 60_000, table),
    ("float", 60_000, float),
    ("rotate", 120_000, rotate),
];
const PLANTED: &str = "xorshift";
const REPEATS: usize = 15;

fn main() {
    let factor: f64 = std::env::args()
        .nth(1)
        .map_or(1.0, |text| text.parse().expect("a factor, such as 1.05"));
    let mut rows = Vec::new();
    for (name, steps, work) in BENCHMARKS {
        let steps = if name == PLANTED {
            (steps as f64 * factor) as u64
        } else {
            steps
        };
        for repeat in 0..REPEATS {
            let began = Instant::now();
            black_box(work(black_box(steps)));
            let ns = began.elapsed().as_nanos();
            rows.push(format!(
                r#"{{"name":"{name}","run_name":"{name}","run_type":"iteration","repetition_index":{repeat},"iterations":1,"real_time":{ns},"cpu_time":{ns},"time_unit":"ns"}}"#
            ));
        }
    }
    println!(r#"{{"context":{{}},"benchmarks":[{}]}}"#, rows.join(","));
}

fn lcg(steps: u64) -> u64 {
    (0..steps).fold(1, |x: u64, i| {
        x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i)
    })
}

fn xorshift(steps: u64) -> u64 {
    (0..steps).fold(1, |mut x: u64, i| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.wrapping_add(i)
    })
}

fn table(steps: u64) -> u64 {
    let mut values: Vec<u64> = (0..256).collect();
    for i in 0..steps {
        let at = (i % 256) as usize;
        values[at] = values[at].wrapping_add(values[(at * 7 + 3) % 256] ^ i);
    }
    values[17]
}

fn float(steps: u64) -> u64 {
    (0..steps)
        .fold(1.0, |x: f64, i| x * 1.000_000_1 + 1.0 / (i as f64 + 1.0))
        .to_bits()
}

fn rotate(steps: u64) -> u64 {
    (0..steps).fold(1, |x: u64, i| {
        x.rotate_left(5) ^ i.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

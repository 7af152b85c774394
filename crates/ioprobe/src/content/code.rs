//! C code that compiles: one unit of declarations, then one function per unit, for any whole number
//! of units.
//!
//! Every eighth file is the header of the seven after it. A function calls the previous one, that
//! of the header, and the first of a file between the header and its own, so that everything it
//! calls exists, however many files there are. File 1 has `main`.

use std::fmt::Write;

use super::push_word;
use super::word;

/// File sizes must be a multiple of this.
pub const UNIT: usize = 1024;
const GROUP: u32 = 8;
/// Leaves room for the longest statement, the end of the function and the shortest comment.
const LONGEST_BODY: usize = 800;
/// The draws of a unit: the first for its head, then one per statement; from REMARK on, one per
/// word of the comment.
const DRAWS: u64 = 64;
const REMARK: u64 = 32;

/// Generate unit `number` (from 0) of file `index`, from the stream of `key`.
pub fn unit(key: u64, index: u32, number: u64) -> [u8; UNIT] {
    let mut text = String::with_capacity(2 * UNIT);
    Source {
        key,
        index,
        header: index - index % GROUP,
        number,
    }
    .write(&mut text)
    .expect("a text in memory takes whatever is written to it");
    let mut unit = [b'\n'; UNIT];
    unit[..UNIT - 4].copy_from_slice(&text.as_bytes()[..UNIT - 4]);
    unit[UNIT - 4..].copy_from_slice(b" */\n");
    unit
}

struct Source {
    key: u64,
    index: u32,
    header: u32,
    number: u64,
}

impl Source {
    fn is_header(&self) -> bool {
        self.index == self.header
    }

    fn draw(&self, at: u64) -> u64 {
        word(self.key, self.number * DRAWS + at)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        match (self.number, self.is_header()) {
            (0, true) => self.declarations(text)?,
            (0, false) => self.includes(text)?,
            _ => self.function(text)?,
        }
        text.push_str("/*");
        let mut at = REMARK;
        while text.len() < UNIT {
            text.push(' ');
            push_word(text, self.draw(at) & 1023);
            at += 1;
        }
        Ok(())
    }

    fn declarations(&self, text: &mut String) -> std::fmt::Result {
        let header = self.header;
        text.push_str("#pragma once\n#include <stdint.h>\n\n");
        writeln!(text, "struct f{header:06} {{\n\tuint32_t low, high;")?;
        text.push_str("\tuint64_t sum;\n\tuint8_t bytes[32];\n};\n\n");
        for other in header + 1..header + GROUP {
            writeln!(
                text,
                "uint32_t f{other:06}_00001(const struct f{header:06} *s, uint32_t n);"
            )?;
        }
        Ok(())
    }

    fn includes(&self, text: &mut String) -> std::fmt::Result {
        for name in ["stdint", "stdio", "stdlib", "string"] {
            writeln!(text, "#include <{name}.h>")?;
        }
        writeln!(text, "#include \"f{:06}\"", self.header)?;
        if self.index == 1 {
            text.push_str("\nint main(void)\n{\n\treturn EXIT_SUCCESS;\n}\n");
        }
        Ok(())
    }

    fn function(&self, text: &mut String) -> std::fmt::Result {
        let (index, header, number) = (self.index, self.header, self.number);
        let bits = self.draw(0);
        let (wide, narrow, fill) = (bits & 0xffff, bits >> 16 & 0xff, bits >> 24 & 0xff);
        if self.is_header() {
            writeln!(
                text,
                "static inline uint32_t f{index:06}_{number:05}(uint32_t n)\n{{"
            )?;
            writeln!(text, "\tuint32_t a = n, b = {wide}u, c = {narrow}u;\n")?;
        } else {
            writeln!(
                text,
                "uint32_t f{index:06}_{number:05}(const struct f{header:06} *s, uint32_t n)\n{{"
            )?;
            writeln!(
                text,
                "\tuint32_t a = s->low, b = n + {wide}u, c = {narrow}u;"
            )?;
            text.push_str("\tuint8_t local[64];\n\tsize_t i;\n\n");
            writeln!(
                text,
                "\tfor (i = 0; i < sizeof local; i++)\n\t\tlocal[i] = {fill};"
            )?;
        }
        let mut at = 1;
        while text.len() < LONGEST_BODY {
            self.statement(text, self.draw(at))?;
            at += 1;
        }
        text.push_str("\treturn a ^ b ^ c;\n}\n");
        Ok(())
    }

    fn statement(&self, text: &mut String, bits: u64) -> std::fmt::Result {
        let variable = |shift: u32| ["a", "b", "c"][((bits >> shift & 0xff) % 3) as usize];
        let (x, y, z) = (variable(8), variable(16), variable(24));
        let (few, many) = (bits >> 32 & 31, bits >> 40 & 0xffff);
        let (index, header) = (self.index, self.header);
        let kind = if self.is_header() {
            (bits & 7) % 3
        } else {
            bits & 7
        };
        match kind {
            0 => {
                writeln!(text, "\tif ({x} > {many}u)\n\t\t{y} ^= {z} >> {few};")?;
                writeln!(text, "\telse\n\t\t{x} += {z} * {many}u;")
            }
            1 => {
                writeln!(text, "\tswitch ({x} % {}u) {{", few + 3)?;
                writeln!(text, "\tcase 0:\n\t\t{y} += {many}u;\n\t\tbreak;")?;
                writeln!(text, "\tcase 1:\n\t\t{z} ^= {y};\n\t\tbreak;")?;
                writeln!(text, "\tdefault:\n\t\t{x}--;\n\t}}")
            }
            2 => {
                writeln!(text, "\twhile ({x} > {many}u) {{\n\t\t{x} /= {}u;", few + 2)?;
                writeln!(text, "\t\t{y} += {x};\n\t}}")
            }
            3 => {
                writeln!(text, "\tfor (i = 0; i < {}; i++)", few + 8)?;
                writeln!(
                    text,
                    "\t\t{x} += s->bytes[(i * {many}u) % sizeof s->bytes] ^ local[i];"
                )
            }
            4 if self.number > 1 => {
                let before = self.number - 1;
                writeln!(text, "\t{x} += f{index:06}_{before:05}(s, {y});")
            }
            4 => writeln!(text, "\t{x} += f{header:06}_00001({y});"),
            5 if index % GROUP > 1 => {
                let other = header + 1 + few as u32 % (index % GROUP - 1);
                writeln!(text, "\t{x} ^= f{other:06}_00001(s, {y});")
            }
            5 => writeln!(text, "\t{x} ^= f{header:06}_00001({y});"),
            6 => {
                writeln!(text, "\tif ({x} == {many}u)")?;
                writeln!(text, "\t\tprintf(\"f{index:06}: %u of %u\\n\", {y}, {z});")
            }
            _ => {
                writeln!(text, "\tmemcpy(local + {few}, s->bytes, {});", few + 1)?;
                writeln!(text, "\t{x} += local[{few}];")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_whole_and_ends_with_a_comment() {
        for index in [0, 1, 2, 7, 8, 999_999] {
            for number in [0, 1, 2, 99_999] {
                for key in 0..200 {
                    let unit = unit(key, index, number);
                    let text = std::str::from_utf8(&unit).unwrap();
                    assert_eq!(text.matches("/* ").count(), 1, "{text}");
                    assert!(text.ends_with(" */\n"));
                    assert_eq!(text.matches('{').count(), text.matches('}').count());
                }
            }
        }
    }
}

//! CRC-32 (IEEE 802.3, as in zlib), eight bytes a step.
//!
//! The checksum of a file set, so that anybody can hold it against `zlib.crc32` of the same bytes.

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut row = 1;
    while row < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[row - 1][byte];
            tables[row][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        row += 1;
    }
    tables
}

static TABLES: [[u32; 256]; 8] = tables();

#[derive(Debug, Default)]
pub struct Crc32 {
    inverted: u32,
}

impl Crc32 {
    pub fn update(&mut self, bytes: &[u8]) {
        let mut crc = !self.inverted;
        let mut eights = bytes.chunks_exact(8);
        for eight in &mut eights {
            let low = crc ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
            let mut next = 0;
            for (row, byte) in low.to_le_bytes().iter().chain(&eight[4..]).enumerate() {
                next ^= TABLES[7 - row][usize::from(*byte)];
            }
            crc = next;
        }
        for byte in eights.remainder() {
            crc = (crc >> 8) ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        self.inverted = !crc;
    }

    pub fn value(&self) -> u32 {
        self.inverted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_standard_comes_out_in_any_pieces() {
        // The check value of CRC-32/ISO-HDLC is cbf43926.
        for cut in 0..9 {
            let mut crc = Crc32::default();
            crc.update(&b"123456789"[..cut]);
            crc.update(&b"123456789"[cut..]);
            assert_eq!(crc.value(), 0xcbf4_3926);
        }
    }
}

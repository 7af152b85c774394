//! A BPF assembler with the few instructions that the programs in this folder need.
//!
//! A compiler for them would be needed wherever the probe is built. One instruction is eight bytes:
//! opcode, two registers, an offset and a constant (Linux
//! Documentation/bpf/standardization/instruction-set.rst).

use std::collections::HashMap;

/// R0 holds the result of a helper, R1 to R5 its arguments; R6 to R9 survive a call; R10 is the end
/// of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R6 = 6,
    R7,
    R8,
    R9,
    R10,
}

#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Size {
    Four = 0x00,
    One = 0x10,
    Eight = 0x18,
}

#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Operation {
    Add = 0x00,
    Sub = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Negate = 0x80,
    Move = 0xb0,
    ShiftRightSigned = 0xc0,
}

/// Comparisons of 64 bits, unsigned except for the last two.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum If {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    /// One of the bits is set.
    Any = 0x40,
    NotEqual = 0x50,
    Below = 0xa0,
    SignedAtLeast = 0x70,
    SignedBelow = 0xc0,
}

/// Numbers of helper functions (include/uapi/linux/bpf.h).
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    TimeNs = 5,
    /// The process's number in the high half, the thread's in the low half.
    CurrentNumbers = 14,
    CurrentName = 16,
    ReadUser = 112,
    ReadKernel = 113,
    ReadUserText = 114,
    RingOutput = 130,
    TaskStorageGet = 156,
    CurrentTask = 158,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    constant: i32,
}

type Label = &'static str;

#[derive(Default)]
pub struct Assembler {
    instructions: Vec<Instruction>,
    places: HashMap<Label, usize>,
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: Register, from: u8, offset: i16, constant: i32) {
        self.instructions.push(Instruction {
            code,
            registers: to as u8 | from << 4,
            offset,
            constant,
        });
    }

    /// to = to OPERATION constant
    pub fn constant(&mut self, operation: Operation, to: Register, constant: i32) {
        self.push(0x07 | operation as u8, to, 0, 0, constant);
    }

    /// to = to OPERATION from
    pub fn register(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(0x0f | operation as u8, to, from as u8, 0, 0);
    }

    /// to = a constant of 64 bits
    pub fn wide(&mut self, to: Register, constant: u64) {
        self.push(0x18, to, 0, 0, constant as u32 as i32);
        self.push(0, Register::R0, 0, 0, (constant >> 32) as i32);
    }

    /// to = the map behind a descriptor, which the kernel resolves when it loads the program
    pub fn map(&mut self, to: Register, descriptor: i32) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.push(0x18, to, PSEUDO_MAP_FD, 0, descriptor);
        self.push(0, Register::R0, 0, 0, 0);
    }

    /// to = *(from + offset)
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(0x61 | size as u8, to, from as u8, offset, 0);
    }

    /// *(to + offset) = from
    pub fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(0x63 | size as u8, to, from as u8, offset, 0);
    }

    /// *(to + offset) = a constant
    pub fn store_constant(&mut self, size: Size, to: Register, offset: i16, constant: i32) {
        self.push(0x62 | size as u8, to, 0, offset, constant);
    }

    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(0x05, Register::R0, 0, 0, 0);
    }

    pub fn jump_if(&mut self, left: Register, condition: If, right: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.push(0x05 | condition as u8, left, 0, 0, right);
    }

    pub fn jump_if_register(&mut self, left: Register, condition: If, right: Register, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(0x0d | condition as u8, left, right as u8, 0, 0);
    }

    pub fn call(&mut self, helper: Helper) {
        self.push(0x85, Register::R0, 0, 0, helper as i32);
    }

    pub fn exit(&mut self) {
        self.push(0x95, Register::R0, 0, 0, 0);
    }

    /// Place a jump label here.
    pub fn label(&mut self, label: Label) {
        let before = self.places.insert(label, self.instructions.len());
        assert!(before.is_none(), "label {label} stands twice");
    }

    pub fn finish(mut self) -> Vec<Instruction> {
        for (from, label) in self.jumps {
            let to = *self.places.get(label).expect("every label is placed");
            self.instructions[from].offset = (to as isize - from as isize - 1) as i16;
        }
        self.instructions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in the kernel's own macros (include/linux/filter.h) and in llvm-mc's output.
    #[test]
    fn instructions_are_the_bytes_of_the_specification() {
        let mut program = Assembler::default();
        program.constant(Operation::Move, Register::R0, 7); // b7 00 00 00 07 00 00 00
        program.register(Operation::Add, Register::R6, Register::R10); // 0f a6
        program.load(Size::Eight, Register::R1, Register::R6, -8); // 79 61 f8 ff
        program.store(Size::Four, Register::R10, -4, Register::R1); // 63 1a fc ff
        program.store_constant(Size::Eight, Register::R10, -16, -1); // 7a 0a f0 ff ff ff ff ff
        program.jump_if(Register::R0, If::Equal, 0, "end"); // 15 00 02 00
        program.wide(Register::R2, 0x1_0000_0002); // 18 02 .. 02, then 1
        program.label("end");
        program.call(Helper::TimeNs); // 85 00 00 00 05
        program.exit(); // 95
        let bytes: Vec<u8> = program
            .finish()
            .iter()
            .flat_map(|i| {
                let mut bytes = vec![i.code, i.registers];
                bytes.extend(i.offset.to_le_bytes());
                bytes.extend(i.constant.to_le_bytes());
                bytes
            })
            .collect();
        let wanted: [[u8; 8]; 10] = [
            [0xb7, 0x00, 0, 0, 7, 0, 0, 0],
            [0x0f, 0xa6, 0, 0, 0, 0, 0, 0],
            [0x79, 0x61, 0xf8, 0xff, 0, 0, 0, 0],
            [0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff],
            [0x15, 0x00, 0x02, 0, 0, 0, 0, 0],
            [0x18, 0x02, 0, 0, 2, 0, 0, 0],
            [0x00, 0x00, 0, 0, 1, 0, 0, 0],
            [0x85, 0x00, 0, 0, 5, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, wanted.concat());
    }
}

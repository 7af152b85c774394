"""The guest lab: a machine of its own in QEMU, with disks, a kernel and a network that nothing else depends on."""

"""The guest lab: a QEMU virtual machine with its own disks, kernel and network, on which nothing else depends."""

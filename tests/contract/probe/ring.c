/* Opens a file by io_uring and reads it by io_uring: RING FILE [direct]. With "direct" the file has no descriptor. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct io_uring_params parameters;
static struct io_uring_sqe *requests;
static char *submitted, *completed;
static int ring;

static int done(struct io_uring_sqe request) {
    unsigned *tail = (unsigned *)(submitted + parameters.sq_off.tail);
    unsigned mask = *(unsigned *)(submitted + parameters.sq_off.ring_mask);
    unsigned *places = (unsigned *)(submitted + parameters.sq_off.array);
    requests[*tail & mask] = request;
    places[*tail & mask] = *tail & mask;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    unsigned *head = (unsigned *)(completed + parameters.cq_off.head);
    unsigned among = *(unsigned *)(completed + parameters.cq_off.ring_mask);
    int result = ((struct io_uring_cqe *)(completed + parameters.cq_off.cqes))[*head & among].res;
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return result;
}

static void *mapped(size_t bytes, long place) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, place);
}

int main(int count, char **words) {
    int direct = count > 2, none = -1, result;
    static char buffer[1 << 16];
    ring = syscall(SYS_io_uring_setup, 8, &parameters);
    if (ring < 0) return 77;
    submitted = mapped(parameters.sq_off.array + 4 * parameters.sq_entries, IORING_OFF_SQ_RING);
    completed = mapped(parameters.cq_off.cqes + 16 * parameters.cq_entries, IORING_OFF_CQ_RING);
    requests = mapped(64 * parameters.sq_entries, IORING_OFF_SQES);
    if (direct) syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &none, 1);
    struct io_uring_sqe request = {.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (unsigned long)words[1]};
    request.file_index = direct;
    struct io_uring_sqe reading = {.opcode = IORING_OP_READ, .addr = (unsigned long)buffer, .len = sizeof buffer};
    reading.fd = direct ? (done(request), 0) : done(request);
    reading.flags = direct ? IOSQE_FIXED_FILE : 0;
    while ((result = done(reading)) > 0) reading.off += result;
    return result || !reading.off;
}

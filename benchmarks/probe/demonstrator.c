/* fio's own io_uring demonstrator, t/io_uring, answering one slice at a time.
 *
 * Its source is included as it is. The one thing put between it and the kernel is a gate in front of io_uring_enter: when as
 * many operations are done as were asked for, the clock is read, the answer given, and the next request waited for. That
 * costs it one comparison a call. A slice is measured between two such moments with the queue full at both ends.
 *
 * Built with the folder of fio's source as include path, after its ./configure. A request is "WARM COUNT" on standard input:
 * so many operations before the clock starts, and so many timed. The answer is "COUNT WALL_NS CPU_NS" on standard error.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "config-host.h"
#include "arch/arch.h"
#include "os/os.h"

static void gate(void);

/* What the macro of fio's arch.h does, behind the gate. */
static inline long entered(long number, long ring, long submit, long wait, long flags, long set, long size)
{
	gate(); /* before the registers are filled */

	register long r10 __asm__("r10") = flags;
	register long r8 __asm__("r8") = set;
	register long r9 __asm__("r9") = size;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(ring), "S"(submit), "d"(wait), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

#undef __do_syscall6
#define __do_syscall6(number, a, b, c, d, e, f) \
	entered(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define main demonstrate
#include "t/io_uring.c"
#undef main

static uint64_t ns_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t next_stop, first, asked, wall, cpu;

static void turn(void)
{
	uint64_t done = submitter->done, warm;

	if (wall) {
		uint64_t now = ns_of(CLOCK_MONOTONIC), used = ns_of(CLOCK_PROCESS_CPUTIME_ID);

		fprintf(stderr, "%lu %lu %lu\n", done - first, now - wall, used - cpu);
		wall = asked = 0;
	}
	if (!asked) {
		if (scanf("%lu %lu", &warm, &asked) != 2)
			exit(0);
		next_stop = done + warm;
		return;
	}
	first = done;
	next_stop = done + asked;
	cpu = ns_of(CLOCK_PROCESS_CPUTIME_ID);
	wall = ns_of(CLOCK_MONOTONIC);
}

static void gate(void)
{
	if (__builtin_expect(submitter->done >= next_stop, 0))
		turn();
}

int main(int argc, char **argv)
{
	return demonstrate(argc, argv);
}

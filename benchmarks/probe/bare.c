/* The loops that the probe is held against: the same system calls on the same places, in C, with no clock between first and
 * last. Reads one request a line on standard input, answers with nanoseconds of wall and of CPU time.
 *
 *   pread FILE BLOCKS COUNT SEED    COUNT times 4 KiB at a place drawn by SplitMix64
 *   open FOLDER FILES COUNT         open, read until nothing comes, close; COUNT times over FILES files f000000 ...
 *   stat FOLDER FILES COUNT         stat
 *   getdents FOLDER FILES COUNT     open, getdents64 until the end, close
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096
#define GOLDEN 0x9e3779b97f4a7c15u

static char buffer[65536] __attribute__((aligned(4096)));

static uint64_t ns_of(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t mix(uint64_t z)
{
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void preads(const char *path, uint64_t blocks, uint64_t count, uint64_t seed)
{
	static char known[4096];
	static int fd = -1;
	uint64_t key = mix(seed);

	if (strcmp(known, path)) {
		fd = open(path, O_RDONLY | O_NOATIME);
		if (fd < 0)
			fail(path);
		strcpy(known, path);
	}
	uint64_t cpu = ns_of(CLOCK_THREAD_CPUTIME_ID), wall = ns_of(CLOCK_MONOTONIC);
	for (uint64_t n = 0; n < count; n++) {
		uint64_t draw = mix(key + (n + 1) * GOLDEN);
		uint64_t block = ((draw & 0xffffffffu) * blocks) >> 32;

		if (pread(fd, buffer, BLOCK, (off_t)(block * BLOCK)) != BLOCK)
			fail("pread");
	}
	wall = ns_of(CLOCK_MONOTONIC) - wall;
	cpu = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
	printf("%lu %lu\n", wall, cpu);
}

static char **paths_of(const char *folder, uint64_t files)
{
	static char known[4096];
	static char **paths;

	if (strcmp(known, folder)) {
		paths = calloc(files, sizeof *paths);
		for (uint64_t n = 0; n < files; n++)
			if (asprintf(&paths[n], "%s/f%06lu", folder, n) < 0)
				fail("asprintf");
		strcpy(known, folder);
	}
	return paths;
}

static void read_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW);
	ssize_t n;

	if (fd < 0)
		fail(path);
	while ((n = read(fd, buffer, sizeof buffer)) > 0)
		;
	if (n < 0 || close(fd))
		fail(path);
}

static void stat_file(const char *path)
{
	struct stat status;

	if (stat(path, &status))
		fail(path);
}

static void list_folder(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY);
	long n;

	if (fd < 0)
		fail(path);
	while ((n = syscall(SYS_getdents64, fd, buffer, 32768)) > 0)
		;
	if (n < 0 || close(fd))
		fail(path);
}

static void by_file(const char *verb, const char *folder, uint64_t files, uint64_t count)
{
	char **paths = paths_of(folder, files);
	uint64_t cpu = ns_of(CLOCK_THREAD_CPUTIME_ID), wall = ns_of(CLOCK_MONOTONIC);

	for (uint64_t n = 0; n < count; n++) {
		if (!strcmp(verb, "open"))
			for (uint64_t file = 0; file < files; file++)
				read_file(paths[file]);
		else if (!strcmp(verb, "stat"))
			for (uint64_t file = 0; file < files; file++)
				stat_file(paths[file]);
		else
			list_folder(folder);
	}
	wall = ns_of(CLOCK_MONOTONIC) - wall;
	cpu = ns_of(CLOCK_THREAD_CPUTIME_ID) - cpu;
	printf("%lu %lu\n", wall, cpu);
}

int main(void)
{
	static char line[8192], path[4096];
	char verb[16];
	uint64_t a, b, c;

	while (fgets(line, sizeof line, stdin)) {
		int found = sscanf(line, "%15s %4095s %lu %lu %lu", verb, path, &a, &b, &c);

		if (found == 5 && !strcmp(verb, "pread"))
			preads(path, a, b, c);
		else if (found == 4)
			by_file(verb, path, a, b);
		else
			return 2;
		fflush(stdout);
	}
	return 0;
}

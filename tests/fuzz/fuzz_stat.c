/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What `uwarp stat` and `uwarp run` read of others: the answer of a process that says it uses uwarp, a line of /proc/net/unix, the headers of a program. What is printed is text
 * that no terminal obeys.
 */
#include <sys/mman.h>
#include "fuzz.h"
#include "tool/program.h"
#include "tool/stat.c"

#define ANSWER_MAX 4096u

void tool_error(const char *fmt, ...)
{
}

static int file_of(const u8 *data, size_t len)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	assert(fd >= 0 && write(fd, data, len) == (ssize_t)len && !lseek(fd, 0, SEEK_SET));
	return fd;
}

static void check_printed(const struct shim_stats *s, bool as_json)
{
	FILE *out = stdout;
	char *text;
	size_t n, i;

	stdout = open_memstream(&text, &n);
	print(s, 1, as_json);
	fclose(stdout);
	stdout = out;
	for (i = 0; i < n; i++)
		assert(text[i] == '\n' || (unsigned char)text[i] >= ' ');
	assert(!memchr(text, 0x7F, n));
	free(text);
}

/* The header is right, but for what the input says. */
static void answer(struct fuzz *f)
{
	struct shim_stats head = { .magic = SHIM_STATS_MAGIC, .version = SHIM_STATS_VERSION, .device_size = sizeof(struct shim_stats_device) };
	u8 buf[ANSWER_MAX], how = fuzz_u8(f);
	size_t len = sizeof(head);
	struct process p = { .pid = 1 };
	struct shim_stats *s;
	int err;

	head.devices = how & 1 ? fuzz_u32(f) : fuzz_below(f, 4);
	if (how & 2)
		head.magic += fuzz_near(f);
	if (how & 4)
		head.device_size += fuzz_near(f);
	head.up_ns = fuzz_u64(f);
	fuzz_bytes(f, head.program, fuzz_below(f, sizeof(head.program) + 1));
	memcpy(buf, &head, len);
	memset(buf + len, how, sizeof(buf) - len);
	fuzz_bytes(f, buf + len, sizeof(buf) - len);
	len = how & 8 ? fuzz_u16(f) % sizeof(buf) : sizeof(buf);
	p.fd = file_of(buf, len);
	s = ask(&p, &err);
	if (s)
		check_printed(s, how & 16);
	else
		assert(why_not(err));
	free(s);
}

static void unix_line(struct fuzz *f)
{
	char line[512];
	size_t n = fuzz_bytes(f, line, sizeof(line) - 1);
	const char *name;

	line[n] = '\0';
	name = socket_name(line);
	assert(!name || strlen(name) == SHIM_STATS_NAME_LEN);
}

static void program(struct fuzz *f)
{
	char path[64];
	int fd = file_of(f->p, f->left);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	tool_program_obstacle(path);
	close(fd);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t size)
{
	struct fuzz f = { data, size };

	switch (fuzz_u8(&f) % 4) {
	case 0: case 1: answer(&f); break;
	case 2: unix_line(&f); break;
	case 3: program(&f); break;
	}
	return 0;
}

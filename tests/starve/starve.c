/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * starve: the runner.
 *
 * For each n, and each way in which the n-th allocation or system call can fail, a forked child runs the scenario with this failure, then once more without any, and
 * ends; the sanitizer looks for leaks then. It must not crash, nor hang, nor leave anything behind; a failure that is nobody's business (EINTR) must not be seen; and
 * what is reported as lost (-ETIME) is lost. The scan goes on after a failure and shows them all: which n, what it was, its backtrace and what the child said.
 *
 * Threads make runs differ: a scan has as many n as the count run had, and ends early if nothing was left to fail three times in a row.
 */
#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "starve.h"
#include "netns.h"

#define WEAK __attribute__((weak))
#define GOOD 0
#define BEYOND 3         /* nothing failed: the end */
#define BAD 4
#define BEYOND_MAX 3

WEAK void __sanitizer_print_stack_trace(void);
WEAK void __sanitizer_symbolize_pc(void *pc, const char *format, char *buf, size_t size);

static struct {
	enum inject_kind kind;
	uint32_t from, to, every, offset;
	bool sites;
	int variant;             /* -1: all */
	bool rest, verbose;
	const char *only;
} opt = { .kind = INJECT_ALLOC, .to = UINT32_MAX, .every = 1, .variant = -1 };

struct shared {
	struct inject_report report;
	int fds;                 /* descriptors open at the end */
	long live;               /* blocks */
};

static struct shared *shared;

static const char *kind_name(void)
{
	return opt.kind == INJECT_ALLOC ? "allocation" : "system call";
}

/* ---- in the child ---- */

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void hangs(int sig)
{
	static const char text[] = "HANGS\n";

	(void)sig;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) > 0 && __sanitizer_print_stack_trace)
		__sanitizer_print_stack_trace();
	_exit(BAD);
}

static int bad(const char *what, int err)
{
	fprintf(stderr, "%s: %s\n", what, err ? strerror(-err) : "-");
	return BAD;
}

/* What may become of a failed allocation: the call fails, a thread cannot be made, the peer refuses or resets, completions are flushed, the forked child fails. */
static bool is_reason(int err)
{
	static const int reasons[] = { -ENOMEM, -ENOBUFS, -EAGAIN, -ECONNREFUSED, -ECONNRESET, -ECONNABORTED, -EIO, -ECHILD,
		-EADDRNOTAVAIL }; /* a server that ends the connection for want of memory has the client try again in revision 1, and the first socket may still have the number */
	size_t i;

	for (i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (err == reasons[i])
			return true;
	return !err;
}

/* With a failure, and without. */
static int run_twice(const struct starve_scenario *s, const struct inject_plan *plan)
{
	struct inject_report *r = &shared->report;
	int err;

	inject_arm(plan, r);
	err = s->run();
	inject_disarm();
	if (err == -ETIME && !plan->rest)
		return bad("LOST", err);
	if (err && !r->fired)
		return bad("FAILED WITHOUT A CAUSE", err);
	if (err && r->harmless && !plan->rest)
		return bad("NOTICED", err);
	if (plan->kind == INJECT_ALLOC && !plan->rest && !is_reason(err))
		return bad("NOT THE REASON", err);
	err = s->run();
	if (err)
		return bad("LASTING DAMAGE", err);
	return GOOD;
}

static int compare(const struct shared *ref)
{
	shared->fds = count_fds();
	shared->live = inject_live();
	if (!ref)
		return GOOD;
	if (shared->fds > ref->fds) {
		fprintf(stderr, "DESCRIPTORS: %d open in the end, not %d\n", shared->fds, ref->fds);
		return BAD;
	}
	if (shared->live > ref->live + 8)
		fprintf(stderr, "note: %ld blocks in the end, not %ld\n", shared->live, ref->live);
	return GOOD;
}

static _Noreturn void child(const struct starve_scenario *s, const struct inject_plan *plan, const struct shared *ref, int out)
{
	int rc;

	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	signal(SIGALRM, hangs);
	alarm(s->limit_s);
	rc = run_twice(s, plan);
	if (rc == GOOD)
		rc = compare(ref);
	if (rc == GOOD && plan->n != UINT32_MAX && !shared->report.fired)
		rc = BEYOND;
	exit(rc); /* leaks give another status */
}

/* ---- in the parent ---- */

static int run_child(const struct starve_scenario *s, const struct inject_plan *plan, const struct shared *ref, int out)
{
	int status;
	pid_t pid;

	memset(shared, 0, sizeof(*shared));
	if (ftruncate(out, 0))
		return BAD;
	lseek(out, 0, SEEK_SET);
	fflush(NULL);
	pid = fork();
	if (!pid)
		child(s, plan, ref, out);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return BAD;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void print_output(int out)
{
	char buf[4096];
	ssize_t n;
	off_t at = 0;

	while ((n = pread(out, buf, sizeof(buf), at)) > 0) {
		fwrite(buf, 1, (size_t)n, stdout);
		at += n;
	}
}

static void print_cause(void)
{
	const struct inject_report *r = &shared->report;
	char line[512];
	int i;

	if (!__sanitizer_symbolize_pc) {
		fflush(stdout);
		backtrace_symbols_fd(r->pc, r->depth, STDOUT_FILENO);
		return;
	}
	for (i = 0; i < r->depth; i++) {
		__sanitizer_symbolize_pc((char *)r->pc[i] - 1, "%f %s:%l", line, sizeof(line));
		printf("    #%d %s\n", i, line);
	}
}

static void print_failure(const struct starve_scenario *s, const struct inject_plan *p, int status, int out)
{
	printf("FAIL %s, %s %u:%u%s (%s), status %d; called by\n", s->name, kind_name(), p->n, p->variant, p->rest ? " and all after it" : "", shared->report.what, status);
	print_cause();
	printf("  said:\n");
	print_output(out);
	printf("  again: --only %s%s%s --one %u:%u\n\n", s->name, opt.kind == INJECT_CALLS ? " --calls" : "", p->rest ? " --rest" : "", p->n, p->variant);
	fflush(stdout);
}

struct tally {
	uint32_t points, runs, failed;
};

/* All ways of one n. True: there was nothing left to fail. */
static bool scan_one(const struct starve_scenario *s, uint32_t n, const struct shared *ref, int out, struct tally *t)
{
	struct inject_plan p = { .kind = opt.kind, .n = n, .rest = opt.rest };
	uint32_t variants = 1;

	for (p.variant = opt.variant < 0 ? 0 : (uint32_t)opt.variant; p.variant < variants; p.variant++) {
		int status = run_child(s, &p, ref, out);

		if (shared->report.variants > variants)
			variants = opt.variant < 0 ? shared->report.variants : variants;
		if (status == BEYOND && !shared->report.variants)
			return true;
		if (status == BEYOND)
			continue; /* cannot happen to this call */
		t->runs++;
		if (opt.verbose && status == GOOD) {
			printf("%u:%u %s\n", n, p.variant, shared->report.what);
			print_output(out);
		}
		if (status != GOOD) {
			t->failed++;
			print_failure(s, &p, status, out);
		}
	}
	t->points++;
	return false;
}

/* The first call of its kind? */
static bool is_new_site(const struct inject_report *r, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && i < INJECT_SITES; i++)
		if (r->site[i] == r->site[n])
			return false;
	return n < INJECT_SITES;
}

/* Which n: --sites takes the first one of each site, --every of what is left each K-th. */
static bool wanted(const struct inject_report *r, uint32_t n, uint32_t *seen)
{
	if (n < opt.from || n > opt.to || (opt.sites && !is_new_site(r, n)))
		return false;
	return (*seen)++ % opt.every == opt.offset % opt.every;
}

static void progress(const struct starve_scenario *s, uint32_t n, uint32_t count, const struct tally *t)
{
	static time_t last;
	time_t now = time(NULL);

	if (now - last < 15)
		return;
	last = now;
	printf("%s: %s %u of %u, %u runs, %u failed\n", s->name, kind_name(), n, count, t->runs, t->failed);
	fflush(stdout);
}

static void scan_all(const struct starve_scenario *s, const struct shared *ref, int out, struct tally *t)
{
	uint32_t n, seen = 0, count = ref->report.count;
	int beyond = 0;

	for (n = 0; n < count && beyond < BEYOND_MAX; n++) {
		if (!wanted(&ref->report, n, &seen))
			continue;
		beyond = scan_one(s, n, ref, out, t) ? beyond + 1 : 0;
		progress(s, n, count, t);
	}
	printf("%s - %s: %u %ss that can fail", t->failed ? "not ok" : "ok", s->name, count, kind_name());
	if (opt.sites)
		printf(" at %u places", seen);
	printf(": %u did%s, in %u ways; %u of them were no good\n", t->points, opt.rest ? " with all after them" : "", t->runs, t->failed);
}

/* True: it cannot run here, which has been said. */
static bool skipped(const struct starve_scenario *s)
{
	const char *what;
	int status = 1;
	pid_t pid;

	if (!s->missing)
		return false;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		what = s->missing();
		if (what)
			printf("ok - %s # SKIP %s\n", s->name, what);
		fflush(stdout);
		_exit(what ? 1 : 0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status;
}

static void scan(const struct starve_scenario *s, struct tally *t)
{
	struct inject_plan p = { .kind = opt.kind, .n = UINT32_MAX };
	int out = memfd_create("said", MFD_CLOEXEC), status = run_child(s, &p, NULL, out);
	static struct shared ref;

	ref = *shared;
	if (status == GOOD) {
		scan_all(s, &ref, out, t);
	} else {
		t->failed++;
		print_output(out);
		printf("not ok - %s, without a failing %s: status %d\n", s->name, kind_name(), status);
	}
	fflush(stdout);
	close(out);
}

/* ---- options ---- */

static const char usage[] =
	"usage: %s [--calls] [--rest] [--only SCENARIO] [--sites] [--every K] [--offset N] [--from N] [--to N] [--one N[:V]] [--verbose]\n"
	"  --calls   system calls; default: allocations\n"
	"  --rest    all from the n-th on fail, not the n-th alone\n"
	"  --sites   for each place in the code the first call only\n"
	"  --every   of what is left only each K-th, beginning with --offset\n"
	"  --one     only this n, and only its way V\n";

enum { CALLS = 1, REST, ONLY, SITES, EVERY, OFFSET, FROM, TO, ONE, VERBOSE };

static const struct option options[] = {
	{ "calls", no_argument, NULL, CALLS }, { "rest", no_argument, NULL, REST }, { "only", required_argument, NULL, ONLY },
	{ "sites", no_argument, NULL, SITES }, { "every", required_argument, NULL, EVERY }, { "offset", required_argument, NULL, OFFSET }, { "from", required_argument, NULL, FROM },
	{ "to", required_argument, NULL, TO }, { "one", required_argument, NULL, ONE }, { "verbose", no_argument, NULL, VERBOSE }, { NULL, 0, NULL, 0 },
};

static uint32_t number(const char *text)
{
	return (uint32_t)strtoul(text, NULL, 10);
}

static void take_one(const char *text)
{
	const char *colon = strchr(text, ':');

	opt.from = opt.to = number(text);
	opt.verbose = true;
	if (colon)
		opt.variant = (int)number(colon + 1);
}

static void take_option(int o, const char *arg)
{
	switch (o) {
	case CALLS: opt.kind = INJECT_CALLS; break;
	case REST: opt.rest = true; break;
	case ONLY: opt.only = arg; break;
	case SITES: opt.sites = true; break;
	case EVERY: opt.every = number(arg) ? number(arg) : 1; break;
	case OFFSET: opt.offset = number(arg); break;
	case FROM: opt.from = number(arg); break;
	case TO: opt.to = number(arg); break;
	case ONE: take_one(arg); break;
	default: opt.verbose = true; break;
	}
}

int starve_main(int argc, char **argv, const struct starve_scenario *scenarios, size_t n)
{
	uint32_t failed = 0, found = 0;
	size_t i;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == '?') {
			fprintf(stderr, usage, argv[0]);
			return 2;
		}
		take_option(o, optarg);
	}
	inject_init();
	netns_enter(); /* port numbers of its own, if it can be: what others leave in TIME_WAIT would be failures that nobody injected */
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (i = 0; i < n; i++) {
		struct tally t = { 0 };

		if (opt.only && strcmp(opt.only, scenarios[i].name) != 0)
			continue;
		found++;
		if (skipped(&scenarios[i]))
			continue;
		scan(&scenarios[i], &t);
		failed += t.failed;
	}
	return failed || !found;
}

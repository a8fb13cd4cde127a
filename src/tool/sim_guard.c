// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/*
 * tool: a simulation in a process of its own. What it found comes back in shared memory; a process that dies, or computes for a minute without a step, has found
 * something, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tool/sim_command.h"

#define LOOK_MS 20
#define HANG_CPU_NS (60 * NSEC_PER_SEC)  /* computing without a step; a busy machine does not count */
#define HANG_NS (900 * NSEC_PER_SEC)     /* or not even that */

struct shared {
	u64 heartbeat;
	int err;
	bool done;
	struct tool_sim_result r;
};

struct guard {
	const struct sim_guarded *g;
	struct shared *shared;
	pid_t pid;
	u64 beat, beat_ns, beat_cpu_ns;
	bool told, hangs, late;
};

static void child(const struct guard *gd)
{
	int null;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	null = gd->g->quiet ? open("/dev/null", O_WRONLY) : -1;

	if (null >= 0)
		dup2(null, STDERR_FILENO);
	gd->shared->err = gd->g->run(gd->g->arg, &gd->shared->heartbeat, &gd->shared->r);
	gd->shared->done = true;
	exit(0);
}

static u64 cpu_ns(pid_t pid)
{
	struct timespec ts;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts))
		return 0;
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec;
}

static void look(struct guard *gd)
{
	u64 now = loop_monotonic_ns(), cpu = cpu_ns(gd->pid), beat = __atomic_load_n(&gd->shared->heartbeat, __ATOMIC_RELAXED);

	if (beat != gd->beat) {
		gd->beat = beat;
		gd->beat_ns = now;
		gd->beat_cpu_ns = cpu;
	}
	if (gd->g->signal && *gd->g->signal && !gd->told) {
		gd->told = true;
		kill(gd->pid, *gd->g->signal);
	}
	gd->hangs = now - gd->beat_ns > HANG_NS || cpu > gd->beat_cpu_ns + (gd->g->step_cpu_ns ? gd->g->step_cpu_ns : HANG_CPU_NS);
	gd->late = gd->g->until_ns && now > gd->g->until_ns;
	if (gd->hangs || gd->late)
		kill(gd->pid, SIGKILL);
}

/* Its wait status. */
static int wait_for(struct guard *gd)
{
	struct timespec pause = { .tv_nsec = LOOK_MS * NSEC_PER_MSEC };
	int status = 0;
	pid_t pid;

	gd->beat_ns = loop_monotonic_ns();
	for (;;) {
		pid = waitpid(gd->pid, &status, gd->hangs || gd->late ? 0 : WNOHANG);
		if (pid == gd->pid || (pid < 0 && errno != EINTR))
			return status;
		nanosleep(&pause, NULL);
		look(gd);
	}
}

static int judge(const struct guard *gd, int status, struct tool_sim_result *r)
{
	*r = gd->shared->r;
	if (gd->shared->done && !status)
		return gd->shared->err;
	if (r->violations)
		return 0; /* that, and then it crashed */
	if (gd->late)
		return -ETIME;
	r->violations = 1;
	r->started_then = r->started;
	if (gd->hangs)
		snprintf(r->first_violation, sizeof(r->first_violation), "hang: the last step does not end");
	else if (WIFSIGNALED(status))
		snprintf(r->first_violation, sizeof(r->first_violation), "crash: %s", strsignal(WTERMSIG(status)));
	else
		snprintf(r->first_violation, sizeof(r->first_violation), "crash: exit status %d", WEXITSTATUS(status));
	return 0;
}

int sim_guard_run(const struct sim_guarded *g, struct tool_sim_result *r)
{
	struct guard gd = { .g = g };
	int err;

	gd.shared = mmap(NULL, sizeof(*gd.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (gd.shared == MAP_FAILED)
		return -errno;
	fflush(NULL);
	gd.pid = fork();
	if (!gd.pid)
		child(&gd);
	if (gd.pid < 0)
		err = -errno;
	else
		err = judge(&gd, wait_for(&gd), r);
	munmap(gd.shared, sizeof(*gd.shared));
	return err;
}

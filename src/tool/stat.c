// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: `uwarp stat`: asks the processes that use uwarp, as src/shim/stats.h says. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "shim/stats.h"
#include "tool/json.h"
#include "tool/tool.h"

#define UNIX_SOCKETS "/proc/net/unix"
#define ANSWER_TIMEOUT_S 2

/* A process that may be asked. */
struct process {
	pid_t pid;
	uid_t uid;
	int fd;
	char name[SHIM_STATS_NAME_LEN + 1];
};

/* ---- finding them ---- */

static int connect_to(const char *name)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = ANSWER_TIMEOUT_S };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	memcpy(sun.sun_path + 1, name, SHIM_STATS_NAME_LEN);
	if (!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) && !setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) &&
	    !connect(fd, (struct sockaddr *)&sun, offsetof(struct sockaddr_un, sun_path) + 1 + SHIM_STATS_NAME_LEN))
		return fd;
	close(fd);
	return -errno;
}

/* Whose socket it really is; anybody can take such a name. A process of another PID namespace has no number here. */
static bool identify(struct process *p)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(p->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || peer.pid <= 0)
		return false;
	p->pid = peer.pid;
	p->uid = peer.uid;
	return true;
}

/* The name in a line of /proc/net/unix, or NULL; sockets that were accepted stand there with the same name, and are not in state 1. */
static const char *socket_name(char *line)
{
	char *name = strstr(line, " @" SHIM_STATS_PREFIX);
	unsigned int flags;

	if (!name || sscanf(line, "%*s %*s %*s %x", &flags) != 1 || !(flags & 0x10000)) /* __SO_ACCEPTCON */
		return NULL;
	name += 2;
	name[strcspn(name, "\n")] = '\0';
	return strlen(name) == SHIM_STATS_NAME_LEN ? name : NULL;
}

/* The next process of the list, connected to. */
static bool next_process(FILE *list, struct process *p)
{
	char line[512];
	const char *name;

	while (fgets(line, sizeof(line), list)) {
		name = socket_name(line);
		if (!name)
			continue;
		memcpy(p->name, name, sizeof(p->name));
		p->fd = connect_to(name);
		if (p->fd < 0)
			continue; /* it has ended */
		if (identify(p))
			return true;
		close(p->fd);
	}
	return false;
}

static FILE *open_list(void)
{
	FILE *list = fopen(UNIX_SOCKETS, "re");

	if (!list)
		tool_error(UNIX_SOCKETS ": %s", strerror(errno));
	return list;
}

/* ---- asking ---- */

static bool read_all(int fd, void *buf, size_t len)
{
	ssize_t n;
	size_t got;

	for (got = 0; got < len; got += (size_t)n) {
		n = read(fd, (char *)buf + got, len - got);
		if (n <= 0)
			return false;
	}
	return true;
}

static struct shim_stats *read_stats(int fd, int *err)
{
	struct shim_stats head, *s;
	size_t len;

	errno = 0;
	*err = -EACCES;
	if (!read_all(fd, &head, sizeof(head))) {
		*err = errno ? -errno : -EACCES; /* it hangs up on those that it does not answer */
		return NULL;
	}
	*err = -EPROTO;
	if (head.magic != SHIM_STATS_MAGIC || head.version != SHIM_STATS_VERSION || head.device_size != sizeof(*s->device) ||
	    head.devices > SHIM_STATS_DEVICES)
		return NULL;
	len = head.devices * sizeof(*s->device);
	s = malloc(sizeof(*s) + len);
	if (!s)
		return NULL;
	*s = head;
	if (read_all(fd, s->device, len))
		return s;
	free(s);
	return NULL;
}

/* No string without an end; none that the terminal would obey. */
static void clean_string(char *s, size_t size)
{
	s[size - 1] = '\0';
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7F)
			*s = '?';
}

static void make_clean(struct shim_stats *s)
{
	u32 i;

	clean_string(s->program, sizeof(s->program));
	for (i = 0; i < s->devices; i++)
		clean_string(s->device[i].name, sizeof(s->device[i].name));
}

static struct shim_stats *ask(struct process *p, int *err)
{
	struct shim_stats *s = read_stats(p->fd, err);

	close(p->fd);
	p->fd = -1;
	if (s)
		make_clean(s);
	return s;
}

static const char *why_not(int err)
{
	switch (err) {
	case -EACCES: return "it answers its own user and root only, or is about to end";
	case -EAGAIN: return "it does not answer; is it stopped?";
	case -EPROTO: return "it runs another version of uwarp";
	default: return strerror(-err);
	}
}

/* ---- printing ---- */

static void json_messages(struct tool_json *j, const char *key, const u64 msgs[RDMAP_OPCODES])
{
	static const char *const names[RDMAP_OPCODES] = {
		[RDMAP_WRITE] = "write",
		[RDMAP_READ_REQ] = "read_request",
		[RDMAP_READ_RESP] = "read_response",
		[RDMAP_SEND] = "send",
		[RDMAP_SEND_INV] = "send_invalidate",
		[RDMAP_SEND_SE] = "send_solicited",
		[RDMAP_SEND_SE_INV] = "send_solicited_invalidate",
		[RDMAP_TERMINATE] = "terminate",
		[RDMAP_IMM] = "immediate",
		[RDMAP_IMM_SE] = "immediate_solicited",
		[RDMAP_ATOMIC_REQ] = "atomic_request",
		[RDMAP_ATOMIC_RESP] = "atomic_response",
	};
	size_t i;

	tool_json_object(j, key);
	for (i = 0; i < RDMAP_OPCODES; i++)
		tool_json_u64(j, names[i], msgs[i]);
	tool_json_object_end(j);
}

static void json_connections(struct tool_json *j, const struct cm_stats *cm)
{
	tool_json_object(j, "connections");
	tool_json_u64(j, "out", cm->established_active);
	tool_json_u64(j, "in", cm->established_passive);
	tool_json_u64(j, "now", cm->nodes_now);
	tool_json_u64(j, "listeners", cm->listeners_now);
	tool_json_u64(j, "failed_out", cm->connect_errs);
	tool_json_u64(j, "failed_in", cm->passive_errs);
	tool_json_u64(j, "rejected", cm->rejects);
	tool_json_u64(j, "retries", cm->retransmits);
	tool_json_u64(j, "backlog_drops", cm->backlog_drops);
	tool_json_u64(j, "half_open_evicted", cm->half_open_evicted);
	tool_json_u64(j, "silent_evicted", cm->silent_evicted);
	tool_json_u64(j, "refused_evicted", cm->refused_evicted);
	tool_json_u64(j, "cookies_sent", cm->cookies_sent);
	tool_json_u64(j, "cookies_accepted", cm->cookies_accepted);
	tool_json_u64(j, "cookies_bad", cm->cookies_bad);
	tool_json_u64(j, "challenge_acks", cm->challenge_acks);
	tool_json_u64(j, "mpa_fallbacks", cm->mpa_fallbacks);
	tool_json_u64(j, "loopback", cm->loopbacks);
	tool_json_object_end(j);
}

static void json_device(struct tool_json *j, const struct shim_stats_device *d)
{
	const struct rnic_qp_stats *qp = &d->nic.qp;

	tool_json_object(j, NULL);
	tool_json_str(j, "device", d->name);
	json_connections(j, &d->cm);
	tool_json_u64(j, "qps", d->nic.qps_created);
	tool_json_u64(j, "qps_now", d->nic.qps_now);
	tool_json_u64(j, "bytes_out", qp->tx_bytes);
	tool_json_u64(j, "bytes_in", qp->rx_bytes);
	tool_json_u64(j, "fpdus_out", qp->tx_fpdus);
	tool_json_u64(j, "fpdus_in", qp->rx_fpdus);
	json_messages(j, "messages_out", qp->tx_msgs);
	json_messages(j, "messages_in", qp->rx_msgs);
	tool_json_u64(j, "terminates_out", qp->terminates_sent);
	tool_json_u64(j, "terminates_in", qp->terminates_received);
	tool_json_u64(j, "completions_in_error", qp->completions_in_error);
	tool_json_object_end(j);
}

static void print_json(const struct shim_stats *s, pid_t pid)
{
	struct tool_json j;
	u32 i;

	tool_json_begin(&j, stdout);
	tool_json_u64(&j, "pid", (u64)pid);
	tool_json_str(&j, "program", s->program);
	tool_json_double(&j, "seconds", (double)s->up_ns / NSEC_PER_SEC);
	tool_json_array(&j, "devices");
	for (i = 0; i < s->devices; i++)
		json_device(&j, &s->device[i]);
	tool_json_array_end(&j);
	tool_json_end(&j);
}

static void print(const struct shim_stats *s, pid_t pid, bool json)
{
	if (json)
		print_json(s, pid);
	else
		shim_stats_print(stdout, s, pid);
}

/* ---- the list ---- */

static void list_one(const struct process *p, const struct shim_stats *s, int err)
{
	u64 connections = 0, bytes = 0;
	u32 i;

	for (i = 0; s && i < s->devices; i++) {
		connections += s->device[i].cm.nodes_now;
		bytes += s->device[i].nic.qp.tx_bytes + s->device[i].nic.qp.rx_bytes;
	}
	if (s)
		printf("%8d %8u %12llu %16llu  %s\n", (int)p->pid, p->uid, (unsigned long long)connections, (unsigned long long)bytes, s->program);
	else
		printf("%8d %8u %12s %16s  (%s)\n", (int)p->pid, p->uid, "-", "-", why_not(err));
}

static int list_processes(bool json)
{
	FILE *list = open_list();
	struct shim_stats *s;
	struct process p;
	int err;

	if (!list)
		return TOOL_LOCAL;
	if (!json)
		printf("%8s %8s %12s %16s  %s\n", "pid", "uid", "connections", "bytes", "program");
	while (next_process(list, &p)) {
		s = ask(&p, &err);
		if (!json)
			list_one(&p, s, err);
		else if (s)
			print_json(s, p.pid);
		free(s);
	}
	fclose(list);
	return TOOL_OK;
}

/* ---- one of them ---- */

static bool find_process(pid_t pid, struct process *p)
{
	FILE *list = open_list();
	bool found = false;

	if (!list)
		return false;
	while (!found && next_process(list, p)) {
		/* Nobody but its user and root can speak for it: the socket is its own, by the kernel's word. */
		found = p->pid == pid;
		if (!found)
			close(p->fd);
	}
	fclose(list);
	return found;
}

static int show_once(struct process *p, bool again, bool json)
{
	int err;
	struct shim_stats *s = ask(p, &err);

	if (!s && again && (err == -EACCES || err == -ECONNRESET))
		return TOOL_OK; /* it answered before: it is about to end */
	if (!s) {
		tool_error("process %d: %s", (int)p->pid, why_not(err));
		return again && err == -EAGAIN ? TOOL_OK : TOOL_LOCAL; /* it may go on */
	}
	if (again && !json)
		putchar('\n');
	print(s, p->pid, json);
	free(s);
	return TOOL_OK;
}

static void rest(double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds };

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	fflush(stdout);
	nanosleep(&ts, NULL);
}

static int show_process(pid_t pid, const struct tool_options *o)
{
	struct process p;
	int ret;

	if (!find_process(pid, &p)) {
		tool_error("there is no process %d in this network namespace that uses uwarp", (int)pid);
		return TOOL_LOCAL;
	}
	ret = show_once(&p, false, o->json);
	while (!ret && o->interval_s > 0) {
		rest(o->interval_s);
		p.fd = connect_to(p.name);
		if (p.fd < 0)
			return TOOL_OK; /* it has ended */
		ret = show_once(&p, true, o->json);
	}
	return ret;
}

/**
 * tool_stat() - `uwarp stat`
 * @o: which process, if any; JSON; interval
 *
 * Return: %TOOL_OK, or %TOOL_LOCAL if there is nothing to see.
 */
int tool_stat(const struct tool_options *o)
{
	char *end;
	long pid;

	if (!o->where && o->interval_s > 0) {
		tool_error("--interval needs a PID");
		return TOOL_USAGE;
	}
	if (!o->where)
		return list_processes(o->json);
	errno = 0;
	pid = strtol(o->where, &end, 10);
	if (errno || *end || end == o->where || pid <= 0 || pid > INT32_MAX) {
		tool_error("\"%s\" is not the number of a process", o->where);
		return TOOL_USAGE;
	}
	return show_process((pid_t)pid, o);
}

/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port: captures, as pcap files with nanosecond stamps.
 *
 * Stamps are the loop's time. A real loop counts from the machine's start, so the difference to
 * the time of day, taken once when the file is opened, is added; the virtual time of the wire port
 * stays as it is, and two runs of one seed give the same file.
 *
 * A file is written when libpcap's buffer is full, at port_capture_flush(), and at the end; a pipe
 * or terminal, which somebody watches, after every frame.
 *
 * When writing fails, that is said at once, and nothing more is written: a program may run on for days.
 */
#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "port/port.h"

#define CAPTURE_SNAPLEN 262144

/* A port that is captured. */
struct capture_port {
	struct port_tap tap;
	struct port_capture *capture;
	struct port *port;
	u64 offset_ns;
	LIST_ENTRY(capture_port) entry;
};

struct port_capture {
	pthread_mutex_t lock;
	pcap_t *pcap;
	pcap_dumper_t *dumper;
	u64 epoch_ns;       /* time of day at zero of CLOCK_MONOTONIC */
	bool live;          /* flush after every frame */
	char *path;
	int error;          /* first one, negative errno: set_error() */
	LIST_HEAD(, capture_port) ports;
};

static u64 monotonic_epoch_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (u64)ts.tv_sec * NSEC_PER_SEC + (u64)ts.tv_nsec - loop_monotonic_ns();
}

/* Called with the lock held. What is buffered is dropped: room that is found later would bring frames out of the middle. */
static void set_error(struct port_capture *c, int error)
{
	if (c->error)
		return;
	c->error = error;
	__fpurge(pcap_dump_file(c->dumper));
	log_error("capture", "%s: %s; frames are missing from here on", c->path, strerror(-error));
}

/* Called with the lock held. */
static void note_error(struct port_capture *c)
{
	if (ferror(pcap_dump_file(c->dumper)))
		set_error(c, errno > 0 ? -errno : -EIO);
}

/* Called with the lock held. */
static void flush(struct port_capture *c)
{
	if (!c->error && pcap_dump_flush(c->dumper))
		set_error(c, errno > 0 ? -errno : -EIO);
}

static void capture_frame(struct port_tap *tap, struct port *port, bool out, const struct pkt *p, u64 now_ns)
{
	struct capture_port *cp = container_of(tap, struct capture_port, tap);
	struct port_capture *c = cp->capture;
	struct pcap_pkthdr hdr = { .caplen = p->framelen, .len = p->framelen };

	now_ns += cp->offset_ns;
	hdr.ts.tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
	hdr.ts.tv_usec = (suseconds_t)(now_ns % NSEC_PER_SEC); /* the file's precision is nanoseconds */
	pthread_mutex_lock(&c->lock);
	if (!c->error) {
		pcap_dump((u_char *)c->dumper, &hdr, p->frame);
		if (c->live)
			flush(c);
		else
			note_error(c);
	}
	pthread_mutex_unlock(&c->lock);
}

static int set_err(char *err, size_t errlen, int code, const char *what)
{
	if (errlen)
		snprintf(err, errlen, "%s: %s", what, strerror(-code));
	return code;
}

/* Standard output through a descriptor of its own: pcap_dump_close() closes what it is given. */
static pcap_dumper_t *dump_stdout(pcap_t *pcap)
{
	int fd = fd_own_high(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	if (f)
		return pcap_dump_fopen(pcap, f);
	fd_disown_close(fd);
	return NULL;
}

/* Emptied only once it is sure that nobody else writes it; a pipe has nothing to empty. */
static int open_file(const char *path)
{
	int fd = fd_own_high(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666)), error;
	struct stat st;

	if (fd < 0)
		return -1;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &st) && (!S_ISREG(st.st_mode) || !ftruncate(fd, 0)))
		return fd;
	error = errno == EWOULDBLOCK ? EBUSY : errno;
	fd_disown_close(fd);
	errno = error;
	return -1;
}

static pcap_dumper_t *dump_file(pcap_t *pcap, const char *path)
{
	int fd = open_file(path);
	FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;

	if (f)
		return pcap_dump_fopen(pcap, f);
	fd_disown_close(fd);
	return NULL;
}

static pcap_dumper_t *dump_open(pcap_t *pcap, const char *path)
{
	return strcmp(path, "-") ? dump_file(pcap, path) : dump_stdout(pcap);
}

static void dump_close(pcap_dumper_t *d)
{
	fd_disown(fileno(pcap_dump_file(d)));
	pcap_dump_close(d);
}

/**
 * port_capture_open() - begin a capture file
 * @path: file to create, or "-" for standard output
 * @out: the capture
 * @err: buffer for a message when it fails
 * @errlen: its size
 *
 * Return: 0 or a negative errno; -EBUSY: another process writes this file.
 */
int port_capture_open(const char *path, struct port_capture **out, char *err, size_t errlen)
{
	struct port_capture *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return set_err(err, errlen, -ENOMEM, path);
	c->pcap = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, CAPTURE_SNAPLEN, PCAP_TSTAMP_PRECISION_NANO);
	c->path = strdup(path);
	if (!c->pcap || !c->path) {
		rc = set_err(err, errlen, -ENOMEM, path);
		goto close_pcap;
	}
	errno = 0;
	c->dumper = dump_open(c->pcap, path);
	if (!c->dumper) {
		rc = errno > 0 ? -errno : -EIO;
		set_err(err, errlen, rc, path);
		goto close_pcap;
	}
	pthread_mutex_init(&c->lock, NULL);
	LIST_INIT(&c->ports);
	c->epoch_ns = monotonic_epoch_ns();
	c->live = ftell(pcap_dump_file(c->dumper)) < 0;
	flush(c); /* the file's header: a path on a full disk fails here */
	*out = c;
	return 0;
close_pcap:
	if (c->pcap)
		pcap_close(c->pcap);
	free(c->path);
	free(c);
	return rc;
}

static struct capture_port *find_port(struct port_capture *c, const struct port *p)
{
	struct capture_port *cp;

	LIST_FOREACH(cp, &c->ports, entry)
		if (cp->port == p)
			return cp;
	return NULL;
}

/**
 * port_capture_attach() - capture what passes a port
 * @c: the capture
 * @p: the port, until port_capture_detach() or port_capture_close(); once is enough
 */
void port_capture_attach(struct port_capture *c, struct port *p)
{
	struct capture_port *cp;

	if (find_port(c, p))
		return;
	cp = calloc(1, sizeof(*cp));
	if (!cp) {
		pthread_mutex_lock(&c->lock);
		set_error(c, -ENOMEM);
		pthread_mutex_unlock(&c->lock);
		return;
	}
	cp->tap.frame = capture_frame;
	cp->capture = c;
	cp->port = p;
	cp->offset_ns = strcmp(p->ops->name, "wire") ? c->epoch_ns : 0;
	LIST_INSERT_HEAD(&c->ports, cp, entry);
	port_tap_add(p, &cp->tap);
}

static void detach(struct capture_port *cp)
{
	port_tap_del(cp->port, &cp->tap);
	LIST_REMOVE(cp, entry);
	free(cp);
}

/**
 * port_capture_detach() - stop capturing a port
 * @c: the capture
 * @p: the port; harmless if it is not attached
 */
void port_capture_detach(struct port_capture *c, struct port *p)
{
	struct capture_port *cp = find_port(c, p);

	if (cp)
		detach(cp);
}

/**
 * port_capture_flush() - write out what is buffered
 * @c: the capture
 */
void port_capture_flush(struct port_capture *c)
{
	pthread_mutex_lock(&c->lock);
	flush(c);
	pthread_mutex_unlock(&c->lock);
}

/**
 * port_capture_close() - end a capture; detaches its ports
 * @c: the capture
 *
 * Return: 0, or the first error there was as a negative errno: the file is not complete then, which the log has said.
 */
int port_capture_close(struct port_capture *c)
{
	struct capture_port *cp, *next;
	int error;

	LIST_FOREACH_SAFE(cp, &c->ports, entry, next)
		detach(cp);
	port_capture_flush(c);
	error = c->error;
	dump_close(c->dumper);
	pcap_close(c->pcap);
	pthread_mutex_destroy(&c->lock);
	free(c->path);
	free(c);
	return error;
}

/**
 * port_capture_lock() - write out what there is, and let nobody add to it: for fork()
 * @c: the capture
 */
void port_capture_lock(struct port_capture *c)
{
	pthread_mutex_lock(&c->lock);
	flush(c);
}

/**
 * port_capture_unlock() - the end of what port_capture_lock() began, in both processes
 * @c: the capture
 */
void port_capture_unlock(struct port_capture *c)
{
	pthread_mutex_unlock(&c->lock);
}

/**
 * port_capture_reopen() - go on in another file: in a forked child, whose parent writes the first one
 * @c: the capture; on failure it takes no more frames
 * @path: as for port_capture_open()
 *
 * Return: 0 or a negative errno.
 */
int port_capture_reopen(struct port_capture *c, const char *path)
{
	char *name = strdup(path);
	pcap_dumper_t *d;

	errno = 0;
	d = name ? dump_open(c->pcap, path) : NULL;
	pthread_mutex_lock(&c->lock);
	if (d) {
		dump_close(c->dumper);
		free(c->path);
		c->path = name;
		c->dumper = d;
		c->live = ftell(pcap_dump_file(d)) < 0;
		c->error = 0;
		flush(c);
	} else {
		c->error = errno > 0 ? -errno : -EIO;
		free(name);
	}
	pthread_mutex_unlock(&c->lock);
	return d ? 0 : c->error;
}

// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/* tool: what an outcome means, for the exit status and in words. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "tool/tool.h"

static const struct {
	enum tool_status status;
	const char *name;           /* in JSON */
	const char *connect_hint, *listen_hint;
} causes[] = {
	[CM_CAUSE_NONE] = { TOOL_OK, "none", NULL, NULL },
	[CM_CAUSE_REFUSED] = { TOOL_REFUSED, "refused",
		"is the server running (rping -s, say), and on this port? A firewall that answers with a reset looks the same", NULL },
	[CM_CAUSE_REJECTED] = { TOOL_REJECTED, "rejected",
		"the other end speaks MPA; its program, or its NIC, declined. Its private data and its log may say why; "
		"try other --mpa-rev, --model, --no-crc, without --markers", NULL },
	[CM_CAUSE_NO_SYNACK] = { TOOL_TIMED_OUT, "no_synack",
		"wrong address, host down, or a firewall that drops the SYN", NULL },
	[CM_CAUSE_NO_MPA_REPLY] = { TOOL_TIMED_OUT, "no_mpa_reply",
		"the other end speaks TCP but not MPA (is it an iWARP listener?), or its program does not answer the request", NULL },
	[CM_CAUSE_NO_MPA_REQUEST] = { TOOL_TIMED_OUT, "no_mpa_request", NULL,
		"who connects here speaks TCP but not MPA, or waits for this side to speak first" },
	[CM_CAUSE_NOT_ACKED] = { TOOL_TIMED_OUT, "not_acked",
		"the other end went away, or frames larger than the path's MTU are lost",
		"the other end went away, or a firewall on the way drops its frames" },
	[CM_CAUSE_RESET] = { TOOL_PROTOCOL, "reset",
		"did the other end's program end? A NIC that cannot serve the request may reset, too: try --mpa-rev 1, --model cs, "
		"without --markers or --no-crc",
		"the other end gave up: did its program end, or its time-out pass?" },
	[CM_CAUSE_CLOSED] = { TOOL_PROTOCOL, "closed",
		"the other end closes what it does not understand: is it an iWARP listener? Try --mpa-rev 1",
		"the other end closed without asking for anything: a port scan, a health check, or a program that ended" },
	[CM_CAUSE_UNREACHABLE] = { TOOL_LOCAL, "unreachable",
		"no route, or a router says that there is no way: ip route get ADDRESS", NULL },
	[CM_CAUSE_BAD_TCP] = { TOOL_PROTOCOL, "bad_tcp",
		"look at the other end's TCP options in a capture (--pcap)", "look at the other end's TCP options in a capture (--pcap)" },
	[CM_CAUSE_MPA_KEY] = { TOOL_PROTOCOL, "mpa_key",
		"another protocol answers on this port", "another protocol knocks at this port" },
	[CM_CAUSE_MPA_REVISION] = { TOOL_PROTOCOL, "mpa_revision",
		"a reply must have the revision of the request: try --mpa-rev with the one that the reply has", "the other end asks for a revision above --mpa-rev" },
	[CM_CAUSE_MPA_LENGTH] = { TOOL_PROTOCOL, "mpa_length",
		"at most 512 bytes may follow the header, and with S at least 4 must",
		"at most 512 bytes may follow the header, and with S at least 4 must" },
	[CM_CAUSE_MPA_FLAGS] = { TOOL_PROTOCOL, "mpa_flags", NULL, "a request does not reject" },
	[CM_CAUSE_MPA_IRD] = { TOOL_PROTOCOL, "mpa_ird",
		"the other end wants to send more RDMA Reads than this side serves: lower its ORD, or "
		"raise --ird (128 at most; for --rtr read 1 at least)",
		"raise --ird here, or lower the other end's ORD" },
	[CM_CAUSE_MPA_RTR] = { TOOL_PROTOCOL, "mpa_rtr",
		"no RTR message that both ends can: offer more with --rtr, or use --model cs",
		"no RTR message that both ends can: take more with --rtr, or use --model cs" },
	[CM_CAUSE_MPA_PARTIAL] = { TOOL_PROTOCOL, "mpa_partial",
		"the other end speaks MPA, but its reply ends in the middle: did its program end? -v shows what came", NULL },
	[CM_CAUSE_NO_RESOURCES] = { TOOL_LOCAL, "no_resources", "ulimit -n, memory, or fewer at a time (--parallel)", "ulimit -n, or memory" },
	[CM_CAUSE_LOCAL] = { TOOL_LOCAL, "local", NULL, NULL },
};
static_assert(ARRAY_SIZE(causes) == CM_CAUSES, "a row per cause");

static enum tool_status status_of_errno(int error)
{
	switch (-error) {
	case 0:
		return TOOL_OK;
	case ECONNREFUSED:
		return TOOL_REFUSED;
	case ETIMEDOUT:
		return TOOL_TIMED_OUT;
	case EPROTO:
	case ECONNRESET:
		return TOOL_PROTOCOL;
	default:
		return TOOL_LOCAL;
	}
}

/**
 * tool_status_of() - what an outcome means for the exit status
 * @type: event that brought it
 * @cause: of it, enum cm_cause
 * @error: negative errno, which counts if there is no cause
 *
 * Return: the status.
 */
enum tool_status tool_status_of(enum iwcm_event_type type, int cause, int error)
{
	if (type == IWCM_EVENT_ESTABLISHED)
		return TOOL_OK;
	if (type == IWCM_EVENT_REJECTED)
		return TOOL_REJECTED;
	if (type == IWCM_EVENT_RESOLVE_ERROR)
		return TOOL_LOCAL;
	if (cause > CM_CAUSE_NONE && cause < CM_CAUSES)
		return causes[cause].status;
	return status_of_errno(error ? error : -EIO);
}

/**
 * tool_status_str() - a status in words
 * @s: status
 *
 * Return: the words, never NULL.
 */
const char *tool_status_str(enum tool_status s)
{
	static const char *const names[] = { "established", "rejected", "refused", "timed out", "protocol error", "local failure" };

	static_assert(ARRAY_SIZE(names) == TOOL_STATUSES, "a name per status");
	return (unsigned int)s < ARRAY_SIZE(names) ? names[s] : "?";
}

/* After a fall-back: revision 1 has been tried. */
static const char *fallen_back_hint(int cause)
{
	switch (cause) {
	case CM_CAUSE_REFUSED:
	case CM_CAUSE_NO_SYNACK:
		return "it took the first connection, which it ended without a reply, and not the second: did its program end, or does it serve one "
		       "connection only? --no-fallback tries once";
	case CM_CAUSE_RESET:
		return "the other end gave up at MPA revision 2, and at 1: is it an iWARP listener, and does its program run? Its log may say more";
	case CM_CAUSE_CLOSED:
		return "the other end closes what it does not understand, and did so at MPA revision 2 and at 1: is it an iWARP listener?";
	default:
		return NULL;
	}
}

/**
 * tool_hint() - a line for someone who debugs the other end
 * @cause: enum cm_cause
 * @listen: this side listens
 * @fell_back: MPA revision 2 was turned down, and this came of revision 1
 *
 * Return: the line, or NULL.
 */
const char *tool_hint(int cause, bool listen, bool fell_back)
{
	if (cause <= 0 || cause >= CM_CAUSES)
		return NULL;
	if (fell_back && fallen_back_hint(cause))
		return fallen_back_hint(cause);
	return listen ? causes[cause].listen_hint : causes[cause].connect_hint;
}

/**
 * tool_cause_name() - a cause as a word for programs
 * @cause: enum cm_cause
 *
 * Return: the word, never NULL.
 */
const char *tool_cause_name(int cause)
{
	return cause >= 0 && cause < CM_CAUSES ? causes[cause].name : "unknown";
}

/**
 * tool_rtr_str() - RTR kinds in words
 * @rtr: RDMAP_RTR_* mask
 * @buf: where to
 *
 * Return: @buf.
 */
char *tool_rtr_str(u32 rtr, char buf[TOOL_RTRSTR])
{
	snprintf(buf, TOOL_RTRSTR, "%s%s%s%s%s", rtr & RDMAP_RTR_SEND ? "Send" : "",
		 rtr & RDMAP_RTR_SEND && rtr & ~(u32)RDMAP_RTR_SEND ? "|" : "", rtr & RDMAP_RTR_WRITE ? "Write" : "",
		 rtr & RDMAP_RTR_WRITE && rtr & RDMAP_RTR_READ ? "|" : "", rtr & RDMAP_RTR_READ ? "Read" : "");
	if (!rtr)
		snprintf(buf, TOOL_RTRSTR, "none");
	return buf;
}

static void print_depth(FILE *f, const char *name, u32 depth)
{
	if (depth == MPA_V2_NOT_NEGOTIATED)
		fprintf(f, "%s not negotiated", name);
	else
		fprintf(f, "%s %u", name, depth);
}

/**
 * tool_print_negotiated() - what was agreed, in words
 * @f: where to
 * @i: of an established connection
 */
void tool_print_negotiated(FILE *f, const struct iwcm_info *i)
{
	char rtr[TOOL_RTRSTR], offered[TOOL_RTRSTR];

	fprintf(f, "    MPA revision %u%s, %s", i->mpa_revision, i->fell_back ? " (after revision 2 was turned down)" : "",
		i->peer_to_peer ? "peer-to-peer" : "client-server");
	if (i->peer_to_peer)
		fprintf(f, ", RTR %s (of %s)", tool_rtr_str(i->rtr, rtr), tool_rtr_str(i->rtr_offered, offered));
	fprintf(f, "\n    CRC %s, markers sent %s, received %s; MSS %u\n    ", i->crc ? "on" : "off", i->send_markers ? "yes" : "no",
		i->receive_markers ? "yes" : "no", i->mss);
	print_depth(f, "IRD", i->ird);
	print_depth(f, ", ORD", i->ord);
	if (i->mpa_revision >= MPA_REV_2) {
		print_depth(f, "; the peer says IRD", i->peer_ird);
		print_depth(f, ", ORD", i->peer_ord);
	}
	if (i->syn_sent > 1 || i->mpa_sent > 1)
		fprintf(f, "\n    sent again: SYN %u, MPA %u times", max(i->syn_sent, 1u) - 1, max(i->mpa_sent, 1u) - 1);
	putc('\n', f);
}

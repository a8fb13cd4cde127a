/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * An independent judge: captures of MPA conversations in every mode, read by tshark. What it decodes has to
 * be what was meant. Without tshark this is skipped.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "rdmap/rdmap.h"

#define SEG_MAX 1400u

struct end {
	u32 addr, seq;
	u16 port;
	struct mpa_stream tx;
};

struct talk {
	FILE *pcap;
	struct end a, b; /* initiator, responder */
	u32 usec;
	bool crc, markers;
};

static void put32(FILE *f, u32 v)
{
	fwrite(&v, sizeof(v), 1, f);
}

static void talk_open(struct talk *t, const char *path, bool crc, bool markers)
{
	memset(t, 0, sizeof(*t));
	t->pcap = fopen(path, "wb");
	assert_non_null(t->pcap);
	put32(t->pcap, 0xA1B2C3D4);
	put32(t->pcap, 0x00040002);
	put32(t->pcap, 0);
	put32(t->pcap, 0);
	put32(t->pcap, 65535);
	put32(t->pcap, 1); /* Ethernet */
	t->a = (struct end){ .addr = 0xC0000201, .seq = 1000, .port = 40000 };
	t->b = (struct end){ .addr = 0xC0000202, .seq = 5000, .port = 7174 };
	t->crc = crc;
	t->markers = markers;
	mpa_stream_init(&t->a.tx, crc, markers);
	mpa_stream_init(&t->b.tx, crc, markers);
}

static void segment(struct talk *t, struct end *from, struct end *to, u8 flags, const u8 *data, u32 len)
{
	struct pkt_route r = { .vlan_id = PKT_VLAN_NONE, .ipv4 = true, .ttl = 64, .src = { from->addr }, .dst = { to->addr } };
	u8 mem[PKT_HDR_MAX + 2 + PKT_TCP_LEN + SEG_MAX], *frame;
	struct tcphdr h = { 0 };
	u32 n;

	h.source = __builtin_bswap16(from->port);
	h.dest = __builtin_bswap16(to->port);
	h.seq = __builtin_bswap32(from->seq);
	h.ack_seq = flags & PKT_ACK ? __builtin_bswap32(to->seq) : 0;
	h.doff = 5;
	h.th_flags = flags;
	h.window = 0xFFFF;
	assert_true(len <= SEG_MAX);
	memcpy(mem + PKT_HDR_MAX, &h, sizeof(h));
	if (len)
		memcpy(mem + PKT_HDR_MAX + sizeof(h), data, len);
	frame = pkt_push_headers(&r, mem + PKT_HDR_MAX, (u32)sizeof(h) + len, 0);
	n = (u32)(mem + PKT_HDR_MAX + sizeof(h) + len - frame);
	put32(t->pcap, 1);
	put32(t->pcap, t->usec += 10);
	put32(t->pcap, n);
	put32(t->pcap, n);
	fwrite(frame, n, 1, t->pcap);
	from->seq += len + !!(flags & (PKT_SYN | PKT_FIN));
}

static void say(struct talk *t, struct end *from, const u8 *data, u32 len)
{
	segment(t, from, from == &t->a ? &t->b : &t->a, PKT_ACK | PKT_PSH, data, len);
}

static void say_ulpdu(struct talk *t, struct end *from, const u8 *ulpdu, u32 len)
{
	u8 fpdu[SEG_MAX];
	int n = mpa_fpdu_build(&from->tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert_true(n > 0);
	say(t, from, fpdu, (u32)n);
}

static void say_start(struct talk *t, struct end *from, const char *key)
{
	struct mpa_start_hdr h = { .rev = MPA_REV_2, .priv_len = __builtin_bswap16(sizeof(struct mpa_v2_data)) };
	struct mpa_v2_data v2 = { .ird = __builtin_bswap16(MPA_V2_P2P | MPA_V2_RTR_SEND | 4),
				  .ord = __builtin_bswap16(MPA_V2_RTR_WRITE | MPA_V2_RTR_READ | 4) };
	u8 frame[MPA_START_HDR_MAX];

	memcpy(h.key, key, MPA_KEY_SIZE);
	h.flags = (u8)(MPA_FLAG_ENHANCED | (t->crc ? MPA_FLAG_CRC : 0) | (t->markers ? MPA_FLAG_MARKERS : 0));
	memcpy(frame, &h, sizeof(h));
	memcpy(frame + sizeof(h), &v2, sizeof(v2));
	say(t, from, frame, sizeof(frame));
}

static void say_set_up(struct talk *t)
{
	segment(t, &t->a, &t->b, PKT_SYN, NULL, 0);
	segment(t, &t->b, &t->a, PKT_SYN | PKT_ACK, NULL, 0);
	segment(t, &t->a, &t->b, PKT_ACK, NULL, 0);
	say_start(t, &t->a, MPA_KEY_REQ);
	say_start(t, &t->b, MPA_KEY_REP);
}

static void say_terminate(struct talk *t, const struct rdmap_error *err, const u8 *ulpdu, u32 len)
{
	u8 term[RDMAP_TERM_MAX];

	say_ulpdu(t, &t->b, term, rdmap_build_terminate(err, 1, ulpdu, len, term));
}

/* Every RTR, the Read's response, a Send long enough for a marker inside, a Terminate. */
static void record(const char *path, bool crc, bool markers, const struct rdmap_error *err)
{
	u8 read[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE], u[1100] = { 0 };
	struct rdmap_error unused;
	struct ddp_hdr h;
	struct talk t;
	u32 len;

	talk_open(&t, path, crc, markers);
	say_set_up(&t);
	len = rdmap_build_rtr(RDMAP_RTR_READ, read);
	say_ulpdu(&t, &t.a, read, len);
	assert_int_equal(ddp_parse(read, len, &h, &unused), 0);
	say_ulpdu(&t, &t.b, u, rdmap_build_rtr_response(&h, u));
	say_ulpdu(&t, &t.a, u, rdmap_build_rtr(RDMAP_RTR_WRITE, u));
	len = rdmap_build_rtr(RDMAP_RTR_SEND, u);
	say_ulpdu(&t, &t.a, u, len);
	u[13] = 2;
	say_ulpdu(&t, &t.a, u, sizeof(u));
	say_ulpdu(&t, &t.a, u, len + 1);
	if (err->layer == TERM_LAYER_RDMAP)
		say_terminate(&t, err, read, sizeof(read));
	else
		say_terminate(&t, err, u, sizeof(u));
	segment(&t, &t.b, &t.a, PKT_FIN | PKT_ACK, NULL, 0);
	segment(&t, &t.a, &t.b, PKT_FIN | PKT_ACK, NULL, 0);
	segment(&t, &t.b, &t.a, PKT_ACK, NULL, 0);
	assert_int_equal(fclose(t.pcap), 0);
}

static char *tshark(const char *path, const char *args)
{
	char cmd[512], *out = calloc(1, 65536);
	size_t n;
	FILE *p;

	snprintf(cmd, sizeof(cmd), "tshark -r %s 2>/dev/null --disable-protocol rpcordma --disable-protocol smb_direct %s", path, args);
	p = popen(cmd, "r"); /* NOLINT(bugprone-command-processor,cert-env33-c): a test */
	assert_non_null(p);
	n = fread(out, 1, 65535, p);
	out[n] = '\0';
	pclose(p);
	return out;
}

static void expect(const char *path, const char *args, const char *want)
{
	char *got = tshark(path, args);

	if (strcmp(got, want) != 0)
		fail_msg("tshark %s says\n%s\ninstead of\n%s", args, got, want);
	free(got);
}

static bool have_tshark(void)
{
	/* NOLINTNEXTLINE(bugprone-command-processor,cert-env33-c): a test */
	return system("tshark --version > /dev/null 2>&1") == 0;
}

#define FIELDS(filter, field) "-Y '" filter "' -T fields -e " field

static void judged_by_tshark(void **state)
{
	static const struct rdmap_error errors[] = {
		{ TERM_LAYER_DDP, TERM_DDP_UNTAGGED, TERM_DDP_U_NO_BUFFER },
		{ TERM_LAYER_RDMAP, TERM_RDMAP_PROTECTION, TERM_RDMAP_STAG },
		{ TERM_LAYER_LLP, 0, TERM_MPA_RTR },
		{ TERM_LAYER_LLP, 0, TERM_MPA_CRC },
	};
	static const char *const hdrct[] = { "1\t1\t0\n", "1\t1\t1\n", "0\t0\t0\n", "0\t0\t0\n" };
	static const char *const layer[] = { "0x01\n", "0x00\n", "0x02\n", "0x02\n" };
	char path[] = "/tmp/uwarp_rdmap_XXXXXX";
	int fd;

	if (!have_tshark()) {
		print_message("skipped: no tshark\n");
		skip();
	}
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	for (unsigned int mode = 0; mode < 4; mode++) {
		bool crc = mode & 1, markers = mode & 2;

		record(path, crc, markers, &errors[mode]);
		expect(path, "-Y '_ws.malformed || _ws.expert.severity == error || tcp.checksum.status == 0'", "");
		expect(path, FIELDS("iwarp_mpa.req || iwarp_mpa.rep", "iwarp_mpa.rev"), "2\n2\n");
		expect(path, FIELDS("iwarp_ddp", "iwarp_rdma.opcode"),
		       "0x01\n0x02\n0x00\n0x03\n0x03\n0x03\n0x07\n");
		expect(path, FIELDS("iwarp_mpa.fpdu && tcp.srcport == 40000", "iwarp_mpa.ulpdulength"),
		       "46\n14\n18\n1100\n19\n");
		expect(path, "-V -O iwarp_mpa | grep -c 'Good CRC32'", crc ? "7\n" : "0\n");
		expect(path, FIELDS("iwarp_mpa.markers", "iwarp_mpa.marker_fpduptr"), markers ? "0\n0\n412,924\n" : "");
		expect(path, FIELDS("iwarp_rdma.opcode == 7", "iwarp_rdma.term_layer"), layer[mode]);
		expect(path, "-Y 'iwarp_rdma.opcode == 7' -T fields -e iwarp_rdma.term_hdrct_m -e iwarp_rdma.hdrct_d"
			     " -e iwarp_rdma.hdrct_r", hdrct[mode]);
	}
	unlink(path);
}

/* From pieces, and sealed in place where there are no markers. */
static void say_pieces(struct talk *t, struct end *from, u8 *hdr, u32 hdr_len, const u8 *payload, u32 len)
{
	struct iovec ulpdu[] = { { hdr + MPA_LEN_SIZE, hdr_len }, { (void *)payload, len } };
	u8 fpdu[SEG_MAX], trailer[MPA_TRAILER_MAX];
	u32 n;

	if (t->markers) {
		int rc = mpa_fpdu_build_iov(&from->tx, ulpdu, 2, fpdu, sizeof(fpdu));

		assert_true(rc > 0);
		say(t, from, fpdu, (u32)rc);
		return;
	}
	n = mpa_seal(&from->tx, hdr, MPA_LEN_SIZE + hdr_len, &ulpdu[1], 1, trailer);
	memcpy(fpdu, hdr, MPA_LEN_SIZE + hdr_len);
	memcpy(fpdu + MPA_LEN_SIZE + hdr_len, payload, len);
	memcpy(fpdu + MPA_LEN_SIZE + hdr_len + len, trailer, n);
	say(t, from, fpdu, MPA_LEN_SIZE + hdr_len + len + n);
}

static void say_untagged(struct talk *t, struct end *from, u8 opcode, bool last, u32 inv_stag, u32 msn, u32 mo, const u8 *payload, u32 len)
{
	u8 hdr[MPA_LEN_SIZE + DDP_UNTAGGED_HDR];

	say_pieces(t, from, hdr, ddp_put_untagged(hdr + MPA_LEN_SIZE, opcode, last, inv_stag, msn, mo), payload, len);
}

static void say_tagged(struct talk *t, struct end *from, u8 opcode, bool last, u32 stag, u64 to, const u8 *payload, u32 len)
{
	u8 hdr[MPA_LEN_SIZE + DDP_TAGGED_HDR];

	say_pieces(t, from, hdr, ddp_put_tagged(hdr + MPA_LEN_SIZE, opcode, last, stag, to), payload, len);
}

/* Every message that carries data or asks for some. */
static void record_messages(const char *path, bool crc, bool markers)
{
	const struct rdmap_read_req read = { .sink_stag = 0x11, .sink_to = 0x2200000022, .len = 1200, .src_stag = 0x33, .src_to = 0x4400000044 };
	const struct rdmap_atomic_req add = { .op = RDMAP_FETCH_ADD, .id = 7, .stag = 0x55, .to = 0x66, .data = 5, .data_mask = 6 };
	const struct rdmap_atomic_req swap = { .op = RDMAP_CMP_SWAP, .id = 8, .stag = 0x56, .to = 0x67, .data = 1, .data_mask = 2,
					       .compare = 3, .compare_mask = 4 };
	u8 body[RDMAP_ATOMIC_REQ_SIZE], data[1201];
	struct talk t;

	memset(data, 0xA5, sizeof(data));
	talk_open(&t, path, crc, markers);
	say_set_up(&t);
	say_untagged(&t, &t.a, RDMAP_SEND, false, 0, 1, 0, data, 1000);
	say_untagged(&t, &t.a, RDMAP_SEND, true, 0, 1, 1000, data, 201);
	say_untagged(&t, &t.a, RDMAP_SEND_INV, true, 0xAABBCCDD, 2, 0, data, 33);
	say_untagged(&t, &t.a, RDMAP_SEND_SE, true, 0, 3, 0, data, 34);
	say_untagged(&t, &t.a, RDMAP_SEND_SE_INV, true, 0xAABBCCDE, 4, 0, data, 35);
	say_tagged(&t, &t.a, RDMAP_WRITE, false, 0x77, 0x8800000088, data, 1100);
	say_tagged(&t, &t.a, RDMAP_WRITE, true, 0x77, 0x8800000088 + 1100, data, 101);
	say_untagged(&t, &t.a, RDMAP_READ_REQ, true, 0, 1, 0, body, rdmap_put_read_req(body, &read));
	say_tagged(&t, &t.b, RDMAP_READ_RESP, false, 0x11, 0x2200000022, data, 1000);
	say_tagged(&t, &t.b, RDMAP_READ_RESP, true, 0x11, 0x2200000022 + 1000, data, 200);
	say_untagged(&t, &t.a, RDMAP_ATOMIC_REQ, true, 0, 2, 0, body, rdmap_put_atomic_req(body, &add));
	say_untagged(&t, &t.b, RDMAP_ATOMIC_RESP, true, 0, 1, 0, body, rdmap_put_atomic_resp(body, 7, 0x99));
	say_untagged(&t, &t.a, RDMAP_ATOMIC_REQ, true, 0, 3, 0, body, rdmap_put_atomic_req(body, &swap));
	say_untagged(&t, &t.b, RDMAP_ATOMIC_RESP, true, 0, 2, 0, body, rdmap_put_atomic_resp(body, 8, 0x9A));
	say_untagged(&t, &t.a, RDMAP_IMM, true, 0, 5, 0, body, rdmap_put_imm(body, 0xBB));
	say_untagged(&t, &t.a, RDMAP_IMM_SE, true, 0, 6, 0, body, rdmap_put_imm(body, 0xBC));
	assert_int_equal(fclose(t.pcap), 0);
}

/* tshark 4.0 knows no Immediate Data: of it only MPA and DDP are judged. */
static void messages_judged_by_tshark(void **state)
{
	char path[] = "/tmp/uwarp_rdmap_XXXXXX";
	int fd;

	if (!have_tshark()) {
		print_message("skipped: no tshark\n");
		skip();
	}
	fd = mkstemp(path);
	assert_true(fd >= 0);
	close(fd);
	for (unsigned int mode = 0; mode < 4; mode++) {
		record_messages(path, mode & 1, mode & 2);
		expect(path, "-Y '_ws.malformed || _ws.expert.severity == error || tcp.checksum.status == 0'", "");
		expect(path, "-V -O iwarp_mpa | grep -c 'Good CRC32'", mode & 1 ? "16\n" : "0\n");
		expect(path, FIELDS("iwarp_ddp", "iwarp_rdma.opcode"),
		       "0x03\n0x03\n0x04\n0x05\n0x06\n0x00\n0x00\n0x01\n0x02\n0x02\n0x0a\n0x0b\n0x0a\n0x0b\n0x08\n0x09\n");
		expect(path, FIELDS("iwarp_ddp", "iwarp_ddp.last_flag"), "0\n1\n1\n1\n1\n0\n1\n1\n0\n1\n1\n1\n1\n1\n1\n1\n");
		expect(path, "-Y 'iwarp_ddp && iwarp_ddp.tagged_flag == 0' -T fields -e iwarp_ddp.qn -e iwarp_ddp.msn -e iwarp_ddp.mo",
		       "0\t1\t0\n0\t1\t1000\n0\t2\t0\n0\t3\t0\n0\t4\t0\n1\t1\t0\n1\t2\t0\n3\t1\t0\n1\t3\t0\n3\t2\t0\n0\t5\t0\n0\t6\t0\n");
		expect(path, FIELDS("iwarp_rdma.opcode == 4 || iwarp_rdma.opcode == 6", "iwarp_rdma.inval_stag"), "2864434397\n2864434398\n");
		expect(path, "-Y 'iwarp_ddp.tagged_flag == 1' -T fields -e iwarp_ddp.stag -e iwarp_ddp.tagged_offset",
		       "0x00000077\t0x0000008800000088\n0x00000077\t0x00000088000004d4\n"
		       "0x00000011\t0x0000002200000022\n0x00000011\t0x000000220000040a\n");
		expect(path, "-Y 'iwarp_rdma.opcode == 1' -T fields -e iwarp_rdma.sinkstag -e iwarp_rdma.sinkto -e iwarp_rdma.rdmardsz"
			     " -e iwarp_rdma.srcstag -e iwarp_rdma.srcto",
		       "0x00000011\t0x0000002200000022\t1200\t0x00000033\t0x0000004400000044\n");
		expect(path, "-Y 'iwarp_rdma.opcode == 10' -T fields -e iwarp_rdma.atomic.opcode -e iwarp_rdma.atomic.request_identifier"
			     " -e iwarp_rdma.atomic.remote_stag -e iwarp_rdma.atomic.remote_tagged_offset -e iwarp_rdma.atomic.add_data"
			     " -e iwarp_rdma.atomic.add_mask -e iwarp_rdma.atomic.swap_data -e iwarp_rdma.atomic.swap_mask"
			     " -e iwarp_rdma.atomic.compare_data -e iwarp_rdma.atomic.compare_mask",
		       "0\t7\t85\t102\t5\t0x0000000000000006\t\t\t0\t0x0000000000000000\n"
		       "2\t8\t86\t103\t\t\t1\t0x0000000000000002\t3\t0x0000000000000004\n");
		expect(path, "-Y 'iwarp_rdma.opcode == 11' -T fields -e iwarp_rdma.atomic.original_request_identifier"
			     " -e iwarp_rdma.atomic.original_remote_data_value", "7\t153\n8\t154\n");
	}
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(judged_by_tshark),
		cmocka_unit_test(messages_judged_by_tshark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

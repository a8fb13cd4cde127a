/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Queue pairs on a port whose peer is the test: offload, RTR, Terminate, every end a stream can have. */
#include "test_rnic_port.h"

#define REPLY "reply that goes first"
#define REPLY_LEN (sizeof(REPLY) - 1)

static struct fake fake;
static struct irdma_qp *qp;
static int disconnects, lsmm_dones;
static bool destroy_in_callback, release_in_callback;
static struct mpa_stream peer_tx; /* what the test sends */
static struct mpa_rx peer_rx;     /* what it receives */
static size_t peer_read;          /* bytes of the stream it has looked at */

static void cm_disconnect(struct irdma_qp *q)
{
	assert_ptr_equal(q, qp);
	assert_true(mutex_try_take(&q->lock)); /* no lock is held */
	mutex_give(&q->lock);
	disconnects++;
	if (destroy_in_callback) {
		rnic_qp_destroy(q);
		qp = NULL;
	}
	if (release_in_callback)
		rnic_qp_release_stream(q);
}

static void cm_lsmm_done(struct irdma_qp *q)
{
	assert_true(mutex_try_take(&q->lock));
	mutex_give(&q->lock);
	assert_true(q->lsmm_sent);
	lsmm_dones++;
}

static const struct rnic_cm_ops cm = { .disconnect = cm_disconnect, .lsmm_done = cm_lsmm_done };

static int setup(void **state)
{
	fake_open(&fake, NULL);
	fake.dev->cm_ops = &cm;
	disconnects = lsmm_dones = 0;
	destroy_in_callback = release_in_callback = false;
	peer_read = 0;
	assert_int_equal(rnic_qp_create(fake.dev, &qp), 0);
	return 0;
}

static int teardown(void **state)
{
	if (qp) {
		rnic_qp_release_stream(qp);
		rnic_qp_destroy(qp);
	}
	mpa_rx_destroy(&peer_rx);
	fake_close_all(&fake);
	return 0;
}

static int offload(const struct tcp_info_ho *tcp, const struct rnic_iwarp_info *iw)
{
	static const struct tcp_info_ho nothing;
	struct port_ah_attr attr = { .ttl = 64 };
	struct irdma_sc_ah ah;
	int rc;

	assert_int_equal(rnic_ah_create(fake.dev, &attr, &ah), 0);
	mpa_stream_init(&peer_tx, iw->crc, iw->rcv_markers);
	mpa_rx_destroy(&peer_rx);
	mpa_rx_init(&peer_rx, iw->crc, iw->snd_markers);
	peer_read = iw->lsmm_len;
	rc = rnic_qp_offload(qp, &ah, tcp ? tcp : &nothing, iw);
	assert_int_equal(ah.valid, rc != 0); /* consumed on success only */
	rnic_ah_destroy(fake.dev, &ah);
	return rc;
}

static const struct rnic_iwarp_info server = { .ird = 8, .ord = 8, .crc = true, .lsmm = REPLY, .lsmm_len = REPLY_LEN };
static const struct rnic_iwarp_info client = { .ird = 8, .ord = 8, .crc = true, .initiator = true };

static void go(const struct rnic_iwarp_info *iw)
{
	assert_int_equal(offload(NULL, iw), 0);
	assert_int_equal(qp->state, RNIC_QP_RTS);
	loop_run(&fake.loop);
}

static void go_p2p(u32 rtr, bool initiator)
{
	struct rnic_iwarp_info iw = initiator ? client : server;

	iw.rtr = rtr;
	iw.rtr_timeout_ms = 1000;
	iw.snd_markers = iw.rcv_markers = true;
	go(&iw);
}

static void peer_says(const u8 *ulpdu, u32 len)
{
	u8 fpdu[4096];
	int n = mpa_fpdu_build(&peer_tx, ulpdu, len, fpdu, sizeof(fpdu));

	assert_true(n > 0);
	fake_peer_sends(&fake, fpdu, (size_t)n);
}

static void peer_says_now(const u8 *ulpdu, u32 len)
{
	peer_says(ulpdu, len);
	fake_event(&fake, PORT_READABLE);
}

static void peer_says_rtr(u32 kind)
{
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE];
	u32 len = rdmap_build_rtr(kind, u);

	peer_says_now(u, len);
}

/* The next message in @bytes from *@at on; false if there is none. */
static bool hear(const u8 *bytes, size_t end, size_t *at, struct ddp_hdr *h)
{
	struct rdmap_error err;
	const u8 *ulpdu = NULL;
	u32 len;

	while (!ulpdu && *at < end) {
		ssize_t n = mpa_rx_feed(&peer_rx, bytes + *at, end - *at, &ulpdu, &len);

		assert_true(n > 0);
		*at += (size_t)n;
	}
	if (!ulpdu)
		return false;
	assert_int_equal(ddp_parse(ulpdu, len, h, &err), 0);
	return true;
}

/* That the QP sent. */
static bool peer_hears(struct ddp_hdr *h)
{
	return hear(fake.stream->out, fake.stream->out_len, &peer_read, h);
}

static void expect_terminate(u8 layer, u8 etype, u8 code)
{
	struct rdmap_error err;
	struct ddp_hdr h;

	assert_true(peer_hears(&h));
	assert_int_equal(rdmap_parse_terminate(&h, &err), 0);
	if (err.layer != layer || err.etype != etype || err.code != code)
		fail_msg("terminated with %u %u %u: %s", err.layer, err.etype, err.code, rdmap_error_str(&err));
	assert_int_equal(h.msn, 1);
	assert_false(peer_hears(&h)); /* nothing behind it */
	assert_true(fake.stream->shut);
	assert_false(fake.stream->aborted);
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	assert_int_equal(qp->last_ae, RNIC_AE_TERMINATE_SENT);
	assert_memory_equal(&qp->term, &err, sizeof(err));
	assert_int_equal(disconnects, 1);
}

/* ---- offload ---- */

static void reply_goes_first(void **state)
{
	go(&server);
	assert_int_equal(fake.stream->out_len, REPLY_LEN);
	assert_memory_equal(fake.stream->out, REPLY, REPLY_LEN);
	assert_int_equal(lsmm_dones, 1);
	assert_true(qp->lsmm_sent);
	assert_int_equal(qp->tx_bytes, REPLY_LEN);
	loop_run(&fake.loop);
	assert_int_equal(lsmm_dones, 1);
	assert_int_equal(disconnects, 0);
}

static void reply_in_pieces(void **state)
{
	fake.room = 3;
	go(&server);
	for (size_t sent = 3; sent < REPLY_LEN; sent += 3) {
		assert_int_equal(fake.stream->out_len, sent);
		assert_int_equal(lsmm_dones, 0);
		fake.stream->room = 3;
		fake_event(&fake, PORT_WRITABLE);
	}
	assert_memory_equal(fake.stream->out, REPLY, REPLY_LEN);
	assert_int_equal(lsmm_dones, 1);
	fake_event(&fake, PORT_WRITABLE);
	assert_int_equal(lsmm_dones, 1);
}

static void offload_fails(void **state)
{
	struct irdma_sc_ah none = { 0 };
	struct tcp_info_ho tcp = { 0 };
	struct port_ops no_frames = fake_ops;

	fake.offload_error = -ECONNRESET;
	assert_int_equal(offload(NULL, &server), -ECONNRESET);
	assert_int_equal(qp->state, RNIC_QP_IDLE);
	fake.offload_error = 0;
	no_frames.flags = 0;
	fake.port.ops = &no_frames;
	assert_int_equal(rnic_qp_offload(qp, &none, &tcp, &server), -EINVAL);
	fake.port.ops = &fake_ops;
	assert_int_equal(offload(NULL, &server), 0);
	assert_int_equal(offload(NULL, &server), -EINVAL); /* a QP lives once */
}

static void whole_frame_nics_have_no_address_handle(void **state)
{
	struct irdma_sc_ah none = { 0 };
	struct tcp_info_ho tcp = { 0 };

	assert_int_equal(rnic_qp_offload(qp, &none, &tcp, &server), 0);
	assert_int_equal(qp->state, RNIC_QP_RTS);
}

static void bytes_behind_the_start_up_frame(void **state)
{
	struct tcp_info_ho tcp = { 0 };
	u8 u[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE], fpdu[64];
	struct rnic_iwarp_info iw = server;
	struct mpa_stream s;
	u32 len;

	iw.rtr = RDMAP_RTR_SEND;
	mpa_stream_init(&s, true, false);
	len = rdmap_build_rtr(RDMAP_RTR_SEND, u);
	tcp.rx_len = (u32)mpa_fpdu_build(&s, u, len, fpdu, sizeof(fpdu));
	tcp.rx_data = fpdu;
	assert_int_equal(offload(&tcp, &iw), 0);
	assert_true(qp->rtr_pending);
	loop_run(&fake.loop); /* no event of the port is needed */
	assert_false(qp->rtr_pending);
}

static void a_fin_that_came_before(void **state)
{
	struct tcp_info_ho tcp = { .peer_fin = true };

	assert_int_equal(offload(&tcp, &server), 0);
	loop_run(&fake.loop);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_FIN_RECEIVED);
	assert_int_equal(disconnects, 1);
}

/* ---- RTR ---- */

static void responder_takes_the_rtr(void **state)
{
	static const u32 kinds[] = { RDMAP_RTR_SEND, RDMAP_RTR_WRITE, RDMAP_RTR_READ };
	struct ddp_hdr h;

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		go_p2p(kinds[i], false);
		assert_true(qp->rtr_pending);
		assert_true(qp->rtr_timer.wt.armed);
		peer_says_rtr(kinds[i]);
		assert_false(qp->rtr_pending);
		assert_false(qp->rtr_timer.wt.armed);
		assert_int_equal(qp->state, RNIC_QP_RTS);
		assert_int_equal(peer_hears(&h), kinds[i] == RDMAP_RTR_READ);
		if (kinds[i] == RDMAP_RTR_READ) {
			assert_int_equal(h.opcode, RDMAP_READ_RESP);
			assert_int_equal(h.payload_len, 0);
		}
		assert_int_equal(qp->rx_fpdus, 1);
		assert_int_equal(disconnects, 0);
		if (i + 1 < ARRAY_SIZE(kinds)) {
			teardown(NULL);
			setup(NULL);
		}
	}
}

static void an_fpdu_of_nothing_is_a_send_rtr(void **state)
{
	go_p2p(RDMAP_RTR_SEND, false);
	peer_says_now((const u8 *)"", 0);
	assert_false(qp->rtr_pending);
	assert_int_equal(qp->state, RNIC_QP_RTS);
	peer_says_now((const u8 *)"", 0); /* once */
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_MARKER);
}

static void another_first_message(void **state)
{
	go_p2p(RDMAP_RTR_WRITE, false);
	peer_says_rtr(RDMAP_RTR_SEND);
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_RTR);
	assert_false(qp->rtr_timer.wt.armed);
}

static void broken_first_message(void **state)
{
	go_p2p(RDMAP_RTR_WRITE, false);
	peer_says_now((const u8 *)"\x41\x4F\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0", 18);
	expect_terminate(TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE);
}

static void initiator_terminates_instead(void **state)
{
	static const struct rdmap_error ird = { TERM_LAYER_LLP, 0, TERM_MPA_IRD };
	u8 term[RDMAP_TERM_MAX];
	u32 len = rdmap_build_terminate(&ird, 1, NULL, 0, term);

	go_p2p(RDMAP_RTR_SEND, false);
	peer_says_now(term, len);
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	assert_int_equal(qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
	assert_memory_equal(&qp->term, &ird, sizeof(ird));
	assert_true(fake.stream->shut);
	assert_int_equal(disconnects, 1);
	assert_false(qp->rtr_timer.wt.armed);
}

static void rtr_does_not_come(void **state)
{
	go_p2p(RDMAP_RTR_SEND, false);
	loop_set_now(&fake.loop, NSEC_PER_SEC + 999 * NSEC_PER_MSEC);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 0);
	loop_set_now(&fake.loop, NSEC_PER_SEC + 1001 * NSEC_PER_MSEC);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 1);
	assert_int_equal(qp->last_ae, RNIC_AE_RTR_TIMEOUT);
	assert_int_equal(qp->state, RNIC_QP_ERROR);
	assert_true(fake.stream->aborted);
}

static void initiator_sends_its_rtr(void **state)
{
	struct ddp_hdr h;

	go_p2p(RDMAP_RTR_WRITE, true);
	assert_false(qp->rtr_pending);
	assert_int_equal(fake.stream->out_len, 0);
	assert_int_equal(rnic_qp_send_rtr(qp), 0);
	assert_true(peer_hears(&h));
	assert_true(rdmap_is_rtr(&h, RDMAP_RTR_WRITE));
	assert_int_equal(rnic_qp_send_rtr(qp), -EINVAL); /* once */
	assert_int_equal(qp->tx_fpdus, 1);
}

/* A peer that may have overlooked the RTR gets Writes of nothing behind it; one that has spoken gets none. */
static void a_silent_responder_is_nudged(void **state)
{
	for (int spoken = 0; spoken < 2; spoken++) {
		u8 resp[DDP_TAGGED_HDR] = { 0xC1, 0x42 };
		struct ddp_hdr h;

		go_p2p(RDMAP_RTR_READ, true);
		assert_int_equal(rnic_qp_send_rtr(qp), 0);
		assert_true(peer_hears(&h));
		if (spoken)
			peer_says_now(resp, sizeof(resp));
		for (u64 ms = 1; ms < 1000; ms++) {
			loop_set_now(&fake.loop, NSEC_PER_SEC + ms * NSEC_PER_MSEC);
			loop_run(&fake.loop);
		}
		for (int i = 0; i < (spoken ? 0 : 3); i++) {
			assert_true(peer_hears(&h));
			assert_true(rdmap_is_rtr(&h, RDMAP_RTR_WRITE));
		}
		assert_false(peer_hears(&h));
		teardown(NULL);
		setup(NULL);
	}
}

static void no_rtr_is_due(void **state)
{
	assert_int_equal(rnic_qp_send_rtr(qp), -EINVAL); /* IDLE */
	go(&client);
	assert_int_equal(rnic_qp_send_rtr(qp), -EINVAL); /* client-server model */
}

static void rtr_on_a_dead_stream(void **state)
{
	go_p2p(RDMAP_RTR_READ, true);
	fake_event(&fake, PORT_RESET);
	assert_int_equal(rnic_qp_send_rtr(qp), -ENOTCONN);
}

static void read_rtr_and_its_response(void **state)
{
	u8 resp[DDP_TAGGED_HDR] = { 0xC1, 0x42 };
	struct ddp_hdr h;

	go_p2p(RDMAP_RTR_READ, true);
	assert_int_equal(rnic_qp_send_rtr(qp), 0);
	assert_true(peer_hears(&h));
	assert_true(rdmap_is_rtr(&h, RDMAP_RTR_READ));
	peer_says_now(resp, sizeof(resp));
	assert_int_equal(qp->state, RNIC_QP_RTS);
	peer_says_now(resp, sizeof(resp)); /* a second one was not asked for */
	expect_terminate(TERM_LAYER_RDMAP, TERM_RDMAP_OPERATION, TERM_RDMAP_OPCODE);
}

/* ---- what a QP without buffers and memory answers ---- */

static void what_there_is_no_place_for(void **state)
{
	static const struct {
		u8 ulpdu[72];
		u32 len;
		u8 layer, etype, code;
	} t[] = {
		{ { 0x41, 0x43, [13] = 1 }, 18, 1, 2, 2 },              /* Send */
		{ { 0x41, 0x44, [13] = 1 }, 30, 1, 2, 2 },              /* with Invalidate */
		{ { 0x41, 0x48, [13] = 1 }, 26, 1, 2, 2 },              /* Immediate */
		{ { 0x41, 0x4B, [9] = 3, [13] = 1 }, 30, 1, 2, 2 },     /* Atomic Response */
		{ { 0xC1, 0x40, 1, 2, 3, 4 }, 15, 1, 1, 0 },            /* Write of a byte */
		{ { 0xC1, 0x42, 1, 2, 3, 4 }, 15, 1, 1, 0 },            /* Read Response with data */
		{ { 0xC1, 0x42 }, 14, 0, 2, 6 },                        /* Read Response without */
		{ { 0x41, 0x41, [9] = 1, [13] = 1, [33] = 1 }, 46, 0, 1, 0 }, /* Read Request of a byte */
		{ { 0x41, 0x41, [9] = 1, [13] = 2 }, 46, 1, 2, 3 },     /* the second before the first */
		{ { 0x41, 0x4A, [9] = 1, [13] = 1 }, 70, 0, 1, 0 },     /* Atomic Request */
		{ { 0x41, 0x4A, [9] = 1, [13] = 9 }, 70, 1, 2, 3 },
		{ { 0x41, 0x43, [9] = 9, [13] = 1 }, 18, 1, 2, 1 },     /* no such queue */
		{ { 0x42, 0x43, [13] = 1 }, 18, 1, 2, 6 },              /* DDP version 2 */
		{ { 0x41, 0x03, [13] = 1 }, 18, 0, 2, 5 },              /* RDMAP version 0 */
		{ { 0x41, 0x4D, [13] = 1 }, 18, 0, 2, 6 },              /* opcode 13 */
		{ { 0x41 }, 1, 2, 0, 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		go(&server);
		peer_says_now(t[i].ulpdu, t[i].len);
		expect_terminate(t[i].layer, t[i].etype, t[i].code);
		peer_says_now(t[i].ulpdu, t[i].len); /* now it is read and forgotten */
		loop_run(&fake.loop);
		assert_int_equal(disconnects, 1);
		assert_int_equal(qp->tx_fpdus, 1);
		if (i + 1 < ARRAY_SIZE(t)) {
			teardown(NULL);
			setup(NULL);
		}
	}
}

static void messages_of_nothing_name_no_memory(void **state)
{
	u8 write[DDP_TAGGED_HDR] = { 0xC1, 0x40, 9, 9, 9, 9 };
	u8 read[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE] = { 0x41, 0x41, [9] = 1, [18] = 0x77 };
	struct ddp_hdr h;

	go(&server);
	peer_says_now(write, sizeof(write));
	for (u8 msn = 1; msn < 5; msn++) {
		read[13] = msn;
		peer_says_now(read, sizeof(read));
		assert_true(peer_hears(&h));
		assert_int_equal(h.opcode, RDMAP_READ_RESP);
		assert_int_equal(h.stag, 0x77000000);
	}
	assert_int_equal(qp->state, RNIC_QP_RTS);
}

/* A peer that asks and does not read the answers cannot make us keep more than its IRD, and what is built. */
static void unread_responses_are_bounded(void **state)
{
	u8 read[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE] = { 0x41, 0x41, [9] = 1 };
	struct ddp_hdr h;
	u8 msn = 0;

	go(&server);
	fake.stream->room = 5; /* of the first answer */
	while (qp->state == RNIC_QP_RTS) {
		read[13] = ++msn;
		peer_says_now(read, sizeof(read));
		assert_true(msn < 100);
	}
	assert_int_equal(msn, 1 + server.ird + 1);
	assert_int_equal(qp->term.code, TERM_RDMAP_STREAM);
	assert_false(fake.stream->shut); /* the Terminate is not out yet */
	assert_int_equal(disconnects, 1);
	fake.stream->room = 1u << 20;
	fake_event(&fake, PORT_WRITABLE);
	assert_true(fake.stream->shut);
	assert_true(peer_hears(&h));
	assert_int_equal(h.opcode, RDMAP_READ_RESP); /* it had begun */
	assert_true(peer_hears(&h));
	assert_int_equal(h.opcode, RDMAP_TERMINATE); /* the others had not */
}

static void broken_crc(void **state)
{
	go(&server);
	fake_peer_sends(&fake, "\0\2ab\0\0\0\0", 8);
	fake_event(&fake, PORT_READABLE);
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_CRC);
}

static void marker_in_the_wrong_place(void **state)
{
	struct rnic_iwarp_info iw = server;

	iw.rcv_markers = true;
	go(&iw);
	fake_peer_sends(&fake, "\0\0\0\4", 4);
	fake_event(&fake, PORT_READABLE);
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_MARKER);
}

static void peer_terminates(void **state)
{
	static const struct rdmap_error cause = { TERM_LAYER_DDP, TERM_DDP_TAGGED, TERM_DDP_T_STAG };
	static const u8 write[14] = { 0xC1, 0x40 };
	u8 term[RDMAP_TERM_MAX];
	u32 len = rdmap_build_terminate(&cause, 1, write, sizeof(write), term);

	go(&client);
	peer_says(term, len);
	fake.stream->peer_fin = true;
	fake.stream->recv_error = 0;
	fake_event(&fake, PORT_READABLE | PORT_EOF);
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	assert_int_equal(qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
	assert_memory_equal(&qp->term, &cause, sizeof(cause));
	assert_int_equal(qp->tx_fpdus, 0); /* a Terminate is not answered */
	assert_true(fake.stream->shut);
	fake_event(&fake, PORT_CLOSED);
	assert_int_equal(qp->last_ae, RNIC_AE_TERMINATE_RECEIVED); /* the first fatal one stays */
	assert_int_equal(disconnects, 1);
}

/* What stands in front of a reset is still read. */
static void terminate_in_front_of_a_reset(void **state)
{
	static const struct rdmap_error cause = { TERM_LAYER_LLP, 0, TERM_MPA_CRC };
	u8 term[RDMAP_TERM_MAX];
	u32 len = rdmap_build_terminate(&cause, 1, NULL, 0, term);

	go(&client);
	peer_says(term, len);
	fake.stream->recv_error = fake.stream->error = -ECONNRESET;
	fake_event(&fake, PORT_READABLE | PORT_RESET);
	assert_int_equal(qp->last_ae, RNIC_AE_TERMINATE_RECEIVED);
	assert_int_equal(qp->state, RNIC_QP_ERROR);
	assert_true(qp->reset_seen);
	assert_int_equal(disconnects, 1);
}

/* ---- the ends of a stream ---- */

static void peer_closes(void **state)
{
	go(&server);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_EOF);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_FIN_RECEIVED);
	assert_int_equal(qp->state, RNIC_QP_CLOSING);
	assert_true(fake.stream->shut);
	assert_int_equal(disconnects, 1);
	fake_event(&fake, PORT_CLOSED);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
	assert_int_equal(disconnects, 1);
}

static void peer_closes_in_mid_fpdu(void **state)
{
	go(&server);
	fake_peer_sends(&fake, "\0\x20", 2);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_READABLE | PORT_EOF);
	expect_terminate(TERM_LAYER_LLP, 0, TERM_MPA_CONN_LOST);
}

static void we_close(void **state)
{
	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	assert_true(fake.stream->shut);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 0);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_EOF);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
	assert_int_equal(disconnects, 1);
	fake_event(&fake, PORT_CLOSED);
	assert_int_equal(disconnects, 1);
}

static void fin_waits_for_what_is_queued(void **state)
{
	fake.room = 5;
	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	assert_false(fake.stream->shut);
	fake.stream->room = 100;
	fake_event(&fake, PORT_WRITABLE);
	assert_true(fake.stream->shut);
	assert_int_equal(fake.stream->out_len, REPLY_LEN);
	assert_int_equal(lsmm_dones, 1);
}

static void data_behind_our_fin(void **state)
{
	static const u8 send[19] = { 0x41, 0x43, [13] = 1 };

	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	peer_says_now(send, sizeof(send)); /* no Terminate can follow our FIN */
	assert_int_equal(qp->state, RNIC_QP_ERROR);
	assert_int_equal(qp->last_ae, RNIC_AE_QP_ERROR);
	assert_int_equal(qp->term.code, TERM_DDP_U_NO_BUFFER);
	assert_true(fake.stream->aborted);
	assert_int_equal(disconnects, 1);
}

static void peer_resets(void **state)
{
	static const struct { int error; enum rnic_ae ae; bool reset; } t[] = {
		{ -ECONNRESET, RNIC_AE_LLP_CONNECTION_RESET, true },
		{ 0, RNIC_AE_LLP_CONNECTION_RESET, true },
		{ -EPIPE, RNIC_AE_LLP_CONNECTION_RESET, true },
		{ -ETIMEDOUT, RNIC_AE_LLP_TOO_MANY_RETRIES, false },
		{ -EHOSTUNREACH, RNIC_AE_LLP_TOO_MANY_RETRIES, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		go(&server);
		fake.stream->error = t[i].error;
		fake_event(&fake, PORT_RESET);
		assert_int_equal(qp->last_ae, t[i].ae);
		assert_int_equal(qp->reset_seen, t[i].reset);
		assert_int_equal(qp->state, RNIC_QP_ERROR);
		assert_false(fake.stream->aborted); /* a reset is not answered */
		assert_int_equal(disconnects, 1);
		fake_event(&fake, PORT_RESET | PORT_CLOSED | PORT_EOF | PORT_READABLE | PORT_WRITABLE);
		assert_int_equal(disconnects, 1);
		if (i + 1 < ARRAY_SIZE(t)) {
			teardown(NULL);
			setup(NULL);
		}
	}
}

static void read_error(void **state)
{
	go(&server);
	fake.stream->recv_error = -ETIMEDOUT;
	fake_event(&fake, PORT_READABLE);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_TOO_MANY_RETRIES);
	assert_int_equal(disconnects, 1);
}

static void send_error(void **state)
{
	go_p2p(RDMAP_RTR_SEND, true);
	fake.stream->send_error = -ECONNRESET;
	assert_int_equal(rnic_qp_send_rtr(qp), 0);
	assert_int_equal(disconnects, 0); /* not from inside the call */
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 1);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_CONNECTION_RESET);
}

static void closed_without_a_word(void **state)
{
	go(&server);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_CLOSED);
	assert_int_equal(qp->last_ae, RNIC_AE_LLP_CLOSE_COMPLETE);
	assert_int_equal(disconnects, 1);
}

/* One peer cannot keep the loop: reading goes on in a work item, and what came with it is not lost. */
static void reading_is_bounded(void **state)
{
	static const u8 write[DDP_TAGGED_HDR] = { 0xC1, 0x40 };
	static u8 bytes[100000 * 20];
	size_t len = 0;
	int recvs;

	go(&server);
	while (len < sizeof(bytes))
		len += (size_t)mpa_fpdu_build(&peer_tx, write, sizeof(write), bytes + len, 20);
	fake_peer_sends(&fake, bytes, len);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_READABLE | PORT_EOF);
	recvs = fake.stream->recvs;
	assert_true(recvs < 40);
	assert_int_equal(qp->state, RNIC_QP_RTS);
	loop_run(&fake.loop);
	assert_int_equal(qp->rx_fpdus, 100000);
	assert_int_equal(qp->state, RNIC_QP_CLOSING);
	assert_int_equal(disconnects, 1);
}

/* ---- the upper layer ---- */

static void legal_and_illegal_steps(void **state)
{
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_RTS), -EINVAL);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), -EINVAL);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_TERMINATE), -EINVAL);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_IDLE), 0);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_STATES), -EINVAL);
	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_IDLE), -EINVAL);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_RTS), -EINVAL);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_ERROR), 0);
	for (unsigned int s = 0; s < RNIC_QP_ERROR; s++)
		assert_int_equal(rnic_qp_modify(qp, (enum rnic_qp_state)s), -EINVAL);
	assert_int_equal(offload(NULL, &server), -EINVAL);
}

static void error_is_told_from_the_loop(void **state)
{
	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_ERROR), 0);
	assert_true(fake.stream->aborted);
	assert_int_equal(disconnects, 0);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 1);
	assert_int_equal(qp->last_ae, RNIC_AE_QP_ERROR);
}

static void error_before_the_offload(void **state)
{
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_ERROR), 0);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 0); /* there is no stream that could end */
	assert_int_equal(offload(NULL, &server), -EINVAL);
}

static void upper_layer_terminates(void **state)
{
	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_TERMINATE), 0);
	loop_run(&fake.loop);
	expect_terminate(TERM_LAYER_RDMAP, TERM_RDMAP_CATASTROPHIC, 0);
}

/* ---- life ---- */

static void found_by_number(void **state)
{
	struct irdma_qp *other, *found;
	u32 num = qp->qp_num;

	assert_int_equal(rnic_qp_create(fake.dev, &other), 0);
	assert_true(num >= 2 && other->qp_num != num);
	found = rnic_qp_find(fake.dev, other->qp_num);
	assert_ptr_equal(found, other);
	rnic_qp_destroy(other);
	assert_null(rnic_qp_find(fake.dev, found->qp_num));
	rnic_qp_put(found);
	assert_null(rnic_qp_find(fake.dev, 0));
	fake.dev->next_qpn = 0xFFFFFF; /* numbers wrap, past those in use */
	for (int i = 0; i < 3; i++) {
		assert_int_equal(rnic_qp_create(fake.dev, &other), 0);
		assert_true(other->qp_num >= 2 && other->qp_num <= 0xFFFFFF && other->qp_num != num);
		rnic_qp_destroy(other);
	}
}

static void destroyed_before_the_offload(void **state)
{
	rnic_qp_destroy(qp);
	qp = NULL;
}

static void destroyed_while_referenced(void **state)
{
	struct irdma_qp *mine = qp;

	rnic_qp_hold(mine);
	rnic_qp_destroy(mine);
	qp = NULL;
	assert_true(mine->destroying);
	assert_int_equal(mine->state, RNIC_QP_ERROR);
	rnic_qp_put(mine);
}

static void destroyed_in_rts(void **state)
{
	struct irdma_qp *mine = qp;

	go(&server);
	rnic_qp_destroy(qp); /* the stream still holds it */
	assert_true(fake.stream->aborted);
	assert_int_equal(disconnects, 0);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 1);
	assert_int_equal(fake.streams_open, 1);
	rnic_qp_release_stream(mine);
	qp = NULL;
	assert_int_equal(fake.streams_open, 0);
}

static void destroyed_while_closing_in_order(void **state)
{
	struct irdma_qp *mine = qp;

	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_CLOSING), 0);
	rnic_qp_destroy(qp);
	assert_false(fake.stream->aborted);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 1);
	rnic_qp_release_stream(mine);
	qp = NULL;
}

static void destroyed_from_inside_the_callback(void **state)
{
	go(&server);
	destroy_in_callback = release_in_callback = true;
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_EOF);
	assert_null(qp);
	assert_int_equal(fake.streams_open, 0);
}

static void released_early(void **state)
{
	struct irdma_qp *mine = qp;

	go(&server);
	assert_int_equal(rnic_qp_modify(qp, RNIC_QP_ERROR), 0);
	rnic_qp_release_stream(qp);
	rnic_qp_release_stream(qp);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 0); /* who released the stream knows */
	assert_int_equal(rnic_qp_modify(mine, RNIC_QP_ERROR), 0);
}

static void released_in_rts(void **state)
{
	go(&server);
	rnic_qp_release_stream(qp);
	assert_int_equal(qp->state, RNIC_QP_ERROR);
	loop_run(&fake.loop);
	assert_int_equal(disconnects, 0);
}

/* Without a CM nobody would close the stream: the NIC does. */
static void no_cm(void **state)
{
	fake.dev->cm_ops = NULL;
	go(&server);
	fake.stream->peer_fin = true;
	fake_event(&fake, PORT_EOF);
	loop_run(&fake.loop);
	assert_int_equal(fake.streams_open, 0);
}

/* A Terminate must not be overtaken by the reset that unread data, or data to come, would cause. */
static void terminated_stream_is_drained(void **state)
{
	static const u8 send[19] = { 0x41, 0x43, [13] = 1 };

	go(&server);
	peer_says_now(send, sizeof(send));
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	assert_true(fake.stream->shut);
	rnic_qp_release_stream(qp);
	assert_int_equal(fake.drains, 1);
	assert_int_equal(fake.rest_len, 0);
	assert_int_equal(disconnects, 1);
}

static void others_are_closed(void **state)
{
	static const u8 send[19] = { 0x41, 0x43, [13] = 1 };

	go(&server);
	fake.stream->peer_fin = true;
	peer_says(send, sizeof(send));
	fake_event(&fake, PORT_READABLE | PORT_EOF);
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	rnic_qp_release_stream(qp);
	assert_int_equal(fake.drains, 0);
}

/* The stream was full: what had begun and the Terminate are the port's to send. */
static void drained_with_the_rest(void **state)
{
	u8 read[DDP_UNTAGGED_HDR + RDMAP_READ_REQ_SIZE] = { 0x41, 0x41, [9] = 1, [13] = 1 };
	static const u8 send[19] = { 0x41, 0x43, [13] = 1 };
	struct ddp_hdr h;
	size_t at = 0;

	go(&server);
	fake.stream->room = 5;
	peer_says_now(read, sizeof(read));
	peer_says_now(send, sizeof(send));
	assert_int_equal(qp->state, RNIC_QP_TERMINATE);
	assert_false(fake.stream->shut);
	assert_false(peer_hears(&h));
	rnic_qp_release_stream(qp);
	assert_int_equal(fake.drains, 1);
	assert_true(hear(fake.rest, fake.rest_len, &at, &h));
	assert_int_equal(h.opcode, RDMAP_READ_RESP); /* it had begun */
	assert_true(hear(fake.rest, fake.rest_len, &at, &h));
	assert_int_equal(h.opcode, RDMAP_TERMINATE);
	assert_int_equal(at, fake.rest_len);
}

/* Random bytes and events from a hostile peer, in every mode: no crash, one disconnect, nothing left. */
static void chaos(void **state)
{
	struct rand_gen g;

	rand_gen_seed(&g, 5);
	for (int run = 0; run < 3000; run++) {
		struct rnic_iwarp_info iw = run & 1 ? client : server;

		iw.crc = run & 2;
		iw.snd_markers = run & 4;
		iw.rcv_markers = run & 8;
		iw.rtr = run & 16 ? 1u << rand_gen_below(&g, 3) : 0;
		iw.rtr_timeout_ms = 5;
		fake.room = rand_gen_below(&g, 40);
		assert_int_equal(offload(NULL, &iw), 0);
		if (iw.initiator && iw.rtr)
			rnic_qp_send_rtr(qp);
		for (int step = 0; step < 12; step++) {
			u8 bytes[100];
			u32 n = (u32)rand_gen_below(&g, sizeof(bytes));

			for (u32 i = 0; i < n; i++)
				bytes[i] = (u8)rand_gen_u64(&g);
			if (n > 20 && rand_gen_chance(&g, 0.7)) {
				bytes[0] = (u8)((rand_gen_chance(&g, 0.5) ? DDP_TAGGED : 0) | DDP_LAST | DDP_VERSION);
				bytes[1] = (u8)(0x40 | rand_gen_below(&g, 13));
				peer_says(bytes, n);
			} else {
				fake_peer_sends(&fake, bytes, n);
			}
			fake.stream->room += rand_gen_below(&g, 60);
			fake.stream->peer_fin |= rand_gen_chance(&g, 0.05);
			if (rand_gen_chance(&g, 0.02))
				fake.stream->send_error = fake.stream->recv_error = -ECONNRESET;
			if (rand_gen_chance(&g, 0.03))
				rnic_qp_modify(qp, (enum rnic_qp_state)rand_gen_below(&g, RNIC_QP_STATES));
			fake_event(&fake, (u32)rand_gen_below(&g, rand_gen_chance(&g, 0.1) ? 32 : 4));
			loop_set_now(&fake.loop, loop_now(&fake.loop) + rand_gen_below(&g, NSEC_PER_MSEC));
			loop_run(&fake.loop);
			assert_in_range(disconnects, 0, 1);
			assert_int_equal(disconnects, qp->disconn_raised);
		}
		teardown(NULL);
		setup(NULL);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reply_goes_first),
		TEST(reply_in_pieces),
		TEST(offload_fails),
		TEST(whole_frame_nics_have_no_address_handle),
		TEST(bytes_behind_the_start_up_frame),
		TEST(a_fin_that_came_before),
		TEST(responder_takes_the_rtr),
		TEST(an_fpdu_of_nothing_is_a_send_rtr),
		TEST(another_first_message),
		TEST(broken_first_message),
		TEST(initiator_terminates_instead),
		TEST(rtr_does_not_come),
		TEST(initiator_sends_its_rtr),
		TEST(a_silent_responder_is_nudged),
		TEST(no_rtr_is_due),
		TEST(rtr_on_a_dead_stream),
		TEST(read_rtr_and_its_response),
		TEST(what_there_is_no_place_for),
		TEST(messages_of_nothing_name_no_memory),
		TEST(unread_responses_are_bounded),
		TEST(broken_crc),
		TEST(marker_in_the_wrong_place),
		TEST(peer_terminates),
		TEST(terminate_in_front_of_a_reset),
		TEST(peer_closes),
		TEST(peer_closes_in_mid_fpdu),
		TEST(we_close),
		TEST(fin_waits_for_what_is_queued),
		TEST(data_behind_our_fin),
		TEST(peer_resets),
		TEST(read_error),
		TEST(send_error),
		TEST(closed_without_a_word),
		TEST(reading_is_bounded),
		TEST(legal_and_illegal_steps),
		TEST(error_is_told_from_the_loop),
		TEST(error_before_the_offload),
		TEST(upper_layer_terminates),
		TEST(found_by_number),
		TEST(destroyed_before_the_offload),
		TEST(destroyed_while_referenced),
		TEST(destroyed_in_rts),
		TEST(destroyed_while_closing_in_order),
		TEST(destroyed_from_inside_the_callback),
		TEST(released_early),
		TEST(released_in_rts),
		TEST(no_cm),
		TEST(terminated_stream_is_drained),
		TEST(others_are_closed),
		TEST(drained_with_the_rest),
		TEST(chaos),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

-------------------------------- MODULE Push --------------------------------
(* Push: prefill ranks write into pages that decode reserved.                *)
(*                                                                           *)
(* The same model as proof/push, action by action and invariant by invariant *)
(* under the same names (a test keeps the names in step). There, Z3 proves   *)
(* it for any number of everything. Here, TLC visits every state of a small  *)
(* world: it knows no induction hypothesis, so it would also find a state    *)
(* that can be reached and that an invariant wrongly allows.                 *)
(*                                                                           *)
(* A lease is what one decode rank reserved for one attempt. <<k, i, t>>     *)
(* says "lease t, as told to prefill rank k in its life i". Messages are     *)
(* relations that only grow: what was once said may be heard late, twice or  *)
(* never, in any order.                                                      *)
EXTENDS Naturals

CONSTANTS Rank,        \* prefill ranks
          Life,        \* incarnations of prefill workers
          DecodeLife,  \* incarnations of decode workers
          Attempt, Lease,
          Page,        \* destinations, at decode
          Source,      \* source pages, at prefill
          Write, Room, Request, Digest

\* What never changes. Functions, and sets of tuples.
CONSTANTS attempt_of, life_of, room_of,
          wanted,            \* the request that decode made an attempt for
          in_lease,          \* <<page, lease>>
          fills,             \* <<rank, lease>>: has a slice to write; others are dummy ranks
          before,            \* <<attempt, attempt>>: numbers within a decode life
          prefill_room,      \* under which the router sent a request to prefill
          digest,
          memory_of,         \* whose memory a page is
          source_memory_of,
          plain_stores,      \* lives that write by CPU stores into shared memory
          writer, writer_life, target, target_page, source_page,
          payload,           \* the request whose context a write is meant to carry
          first_lives        \* <<rank, life>> at the start

CONSTANT LeftOut             \* names of protections (proof/push/rules.py) that are missing

VARIABLE s                   \* all that changes: a record of relations

-----------------------------------------------------------------------------

There == Rank \X Life \X Lease
With(rule) == rule \notin LeftOut
If(rule, condition) == With(rule) => condition

place_of(w) == <<writer[w], writer_life[w], target[w]>>
decode_life_of(t) == life_of[attempt_of[t]]

(* Reserved and not given back: decode still owns its pages. *)
is_live(t) ==
    /\ attempt_of[t] \in s.minted
    /\ t \notin s.released
    /\ decode_life_of(t) \notin s.decode_dead

has_own_digest(q, t) == digest[q] = digest[wanted[attempt_of[t]]]

(* The slice is whole, and holds the context of the lease's own request. *)
holds_own(k, p, t) ==
    /\ \E q \in Request : <<k, p, q>> \in s.slice_holds
    /\ \A q \in Request : <<k, p, q>> \in s.slice_holds => has_own_digest(q, t)

(* A later attempt of the same decode life exists already. *)
passed_over(a) == \E b \in s.minted : life_of[b] = life_of[a] /\ <<a, b>> \in before

is_undecided(t) == is_live(t) /\ t \notin s.held /\ t \notin s.committed

(* Rule 14: the leases of an attempt share every decision. *)
together(t) == IF With("ranks_decide_together") THEN {u \in Lease : attempt_of[u] = attempt_of[t]} ELSE {t}

(* This rank, in this life, can place nothing in this lease any more. *)
is_proved(x) == x \in s.acked \/ x \in s.fenced \/ (With("done_is_an_ack") /\ x \in s.done)

was_granted(k, i, t, per_life) == IF per_life THEN <<k, i, t>> \in s.granted
                                  ELSE \E j \in Life : <<k, j, t>> \in s.granted

-----------------------------------------------------------------------------
(* Nothing has happened; source pages hold anything. *)

Init == \E held \in [Source -> Request] : s =
    [ minted |-> {}, held |-> {}, quarantined |-> {}, committed |-> {}, released |-> {}, released_twice |-> {},
      prefix_tree |-> {}, shares |-> {}, decode_dead |-> {},
      granted |-> {}, heard_bound |-> {}, done |-> {}, acked |-> {}, fenced |-> {},
      said_bound |-> {}, said_done |-> {}, said_committed |-> {}, said_abort |-> {}, said_ack |-> {},
      said_fenced |-> {}, said_closed |-> {},
      current |-> first_lives, over |-> {},
      bound |-> {}, bound_to |-> {}, stopped |-> {}, poisoned |-> {}, tombstone |-> {}, closed |-> {},
      heard_fenced |-> {}, buried |-> {},
      dequeued |-> {}, outstanding |-> {}, launched |-> {}, reading |-> {}, flying |-> {}, torn |-> {},
      placed |-> {}, settled |-> {}, source_fenced |-> {}, carries |-> {},
      source_holds |-> {<<a, held[a]>> : a \in Source}, slice_holds |-> {}, tag |-> {} ]

-----------------------------------------------------------------------------
(* Decode: the way to a commit.                                              *)

(* Mint an attempt: the next number, and pages that nobody owns or shares. *)
reserve(a) ==
    /\ a \notin s.minted
    /\ life_of[a] \notin s.decode_dead
    /\ If("minted_in_order", ~passed_over(a))
    /\ \A t \in Lease : attempt_of[t] = a => \A p \in Page : <<p, t>> \in in_lease =>
          /\ If("fresh_memory", memory_of[p] = life_of[a])
          /\ ~\E u \in Lease : is_live(u) /\ <<p, u>> \in in_lease
          /\ ~\E u \in Lease : attempt_of[u] = a /\ <<p, u>> \in in_lease /\ u # t
          /\ ~\E u \in Lease : <<p, u>> \in s.prefix_tree
    /\ s' = [s EXCEPT !.minted = @ \cup {a}]

(* PUBLISH leaves: from now on this rank, in this life, may be writing. *)
publish(k, i, t) ==
    /\ is_undecided(t)
    /\ s' = [s EXCEPT !.granted =
                (IF With("grants_are_kept") THEN @ ELSE {x \in @ : x[1] # k \/ x[3] # t}) \cup {<<k, i, t>>}]

hear_bound(k, i, t) ==
    /\ <<k, i, t>> \in s.said_bound
    /\ s' = [s EXCEPT !.heard_bound = @ \cup {<<k, i, t>>}]

(* Rule 8: DONE counts for the rank and the life that was granted, held or not. *)
hear_done(k, i, t) ==
    /\ is_live(t) /\ t \notin s.committed
    /\ <<k, i, t>> \in s.said_done
    /\ If("done_of_granted_only", was_granted(k, i, t, With("done_is_per_life")))
    /\ s' = [s EXCEPT !.done = @ \cup (IF With("done_is_per_life") THEN {<<k, i, t>>} ELSE {k} \X Life \X {t})]

(* Rules 8, 11, 14: DONE from everybody, and every page bears its own tag. *)
commit(t) ==
    /\ \A u \in together(t) :
          /\ is_undecided(u)
          /\ If("commit_awaits_every_grant", \A x \in s.granted : x[3] = u => x \in s.done)
          /\ \A k \in Rank : <<k, u>> \in fills => \E i \in Life : <<k, i, u>> \in s.done
          /\ If("coverage", \A k \in Rank, p \in Page :
                (<<k, u>> \in fills /\ <<p, u>> \in in_lease) => <<k, p, u>> \in s.tag)
    /\ s' = [s EXCEPT !.committed = @ \cup together(t),
                      !.said_committed = @ \cup {x \in s.granted : x[3] \in together(t)}]

(* Rule 12: a page of a committed lease enters the prefix tree. *)
cache(p, t) ==
    /\ t \in s.committed /\ <<p, t>> \in in_lease
    /\ s' = [s EXCEPT !.prefix_tree = @ \cup {<<p, t>>}]

finish(t) ==
    LET ends == {u \in together(t) : u \in s.committed} IN
    /\ t \in s.committed
    /\ s' = [s EXCEPT !.released = @ \cup ends, !.committed = @ \ ends, !.shares = {x \in @ : x[1] \notin ends}]

-----------------------------------------------------------------------------
(* Decode: abort, hold, proof, release.                                      *)

(* Rules 1 to 3: every way to fail holds, and ABORT goes to all that were told. *)
abort(t) ==
    LET ends == {u \in together(t) : is_live(u) /\ u \notin s.committed} IN
    /\ is_live(t) /\ t \notin s.committed
    /\ s' = [s EXCEPT !.held = @ \cup ends, !.said_abort = @ \cup {x \in s.granted : x[3] \in ends}]

(* Rules 6, 7: an ack counts for the destination, attempt, rank and life it names. *)
hear_ack(k, i, t, other) ==
    /\ is_live(t) /\ t \notin s.committed
    /\ If("hold_before_ack", t \in s.held)
    /\ <<k, i, other>> \in s.said_ack
    /\ IF ~With("acks_are_per_attempt") THEN room_of[attempt_of[other]] = room_of[attempt_of[t]]
       ELSE IF ~With("acks_are_per_destination") THEN attempt_of[other] = attempt_of[t]
       ELSE other = t
    /\ was_granted(k, i, t, With("acks_are_per_life"))
    /\ s' = [s EXCEPT !.acked = @ \cup (IF With("acks_are_per_life") THEN {<<k, i, t>>} ELSE {k} \X Life \X {t})]

give_back(t) == [s EXCEPT !.released = @ \cup {t},
                          !.released_twice = @ \cup (s.released \cap {t}),
                          !.shares = {x \in @ : x[1] # t}]

(* Section 3: given back when every rank that was told is proved to be quiet. *)
release(t) ==
    /\ IF With("released_once") THEN is_live(t) ELSE attempt_of[t] \in s.minted
    /\ t \in s.held
    /\ \A x \in s.granted :
          (x[3] = t /\ (~With("unbound_ranks_are_asked") => x \in s.heard_bound)) => is_proved(x)
    /\ s' = give_back(t)

(* The hold's deadline passed: out of circulation. The clock frees nothing. *)
quarantine(t) ==
    /\ is_live(t) /\ t \in s.held
    /\ s' = [s EXCEPT !.quarantined = @ \cup {t}]

(* A fact at the receiver: nothing of this rank and life lands here, ever. *)
fence(k, i, t) ==
    /\ is_live(t) /\ t \in s.held /\ <<k, i, t>> \in s.granted
    /\ s' = [s EXCEPT !.fenced = @ \cup {<<k, i, t>>}, !.said_fenced = @ \cup {<<k, i, t>>},
                      !.flying = {w \in @ : place_of(w) # <<k, i, t>>}]

(* The writer's process is over: enough for plain CPU stores only. *)
fence_by_death(k, i, t) ==
    /\ is_live(t) /\ t \in s.held /\ <<k, i, t>> \in s.granted
    /\ <<k, i>> \in s.over
    /\ If("death_fences_plain_stores_only", i \in plain_stores)
    /\ s' = [s EXCEPT !.fenced = @ \cup {<<k, i, t>>}, !.said_fenced = @ \cup {<<k, i, t>>}]

-----------------------------------------------------------------------------
(* Decode: shared pages, numbers, death.                                     *)

share(t, p, other) ==
    /\ is_undecided(t) /\ <<p, other>> \in s.prefix_tree
    /\ memory_of[p] = decode_life_of(t)
    /\ s' = [s EXCEPT !.shares = @ \cup {<<t, p>>}]

evict(p) ==
    /\ ~\E x \in s.shares : x[2] = p
    /\ s' = [s EXCEPT !.prefix_tree = {x \in @ : x[1] # p}]

(* Rule 9: any message may say that an attempt is over, or was skipped. *)
say_closed(a) ==
    LET is_over(t) == t \in s.released \/ (~With("quarantine_stays_open") /\ t \in s.quarantined) IN
    /\ life_of[a] \notin s.decode_dead
    /\ IF a \in s.minted THEN \A t \in Lease : attempt_of[t] = a => is_over(t) ELSE passed_over(a)
    /\ s' = [s EXCEPT !.said_closed = @ \cup {a}]

(* Nobody reads this life's memory any more, and it is nobody else's, ever. *)
crash_decode(d) ==
    /\ d \notin s.decode_dead
    /\ s' = [s EXCEPT !.decode_dead = @ \cup {d},
                      !.committed = {t \in @ : decode_life_of(t) # d},
                      !.prefix_tree = {x \in @ : memory_of[x[1]] # d},
                      !.shares = {x \in @ : decode_life_of(x[1]) # d}]

-----------------------------------------------------------------------------
(* Prefill: hand-offs.                                                       *)

(* Not a buried decode life, and nothing about a closed attempt (rule 9). *)
hears(k, i, t) ==
    /\ <<k, i>> \in s.current
    /\ If("buried_is_refused", <<k, i, decode_life_of(t)>> \notin s.buried)
    /\ If("closed_is_refused", <<k, i, t>> \notin s.closed)

is_idle(x) == ~\E w \in s.outstanding : place_of(w) = x

(* PUBLISH meets its request: same room, same digest, and it is not over. *)
bind(k, i, t, q) ==
    LET x == <<k, i, t>>
        in_this_room(w) == /\ writer[w] = k /\ writer_life[w] = i
                           /\ room_of[attempt_of[target[w]]] = room_of[attempt_of[t]] IN
    /\ x \in s.granted /\ hears(k, i, t) /\ x \notin s.bound
    /\ If("tombstones", x \notin s.tombstone)
    /\ prefill_room[q] = room_of[attempt_of[t]]
    /\ If("digest_pairs", has_own_digest(q, t))
    /\ s' = [s EXCEPT !.bound = @ \cup {x}, !.bound_to = @ \cup {<<k, i, t, q>>}, !.said_bound = @ \cup {x},
                      !.stopped = IF With("tombstones") THEN @ ELSE @ \ {x},
                      !.outstanding = IF With("count_is_per_attempt") THEN @ ELSE {w \in @ : ~in_this_room(w)}]

(* DONE: nothing failed, nothing is outstanding. It is no proof of content. *)
send_done(k, i, t) ==
    LET x == <<k, i, t>> IN
    /\ x \in s.bound /\ <<k, i>> \in s.current
    /\ x \notin s.stopped /\ x \notin s.poisoned /\ is_idle(x)
    /\ s' = [s EXCEPT !.said_done = @ \cup {x}, !.stopped = @ \cup {x}]

(* Prefill ends it by itself: client, router, deadline, a lost stream. *)
stop(k, i, t) ==
    /\ <<k, i, t>> \in s.bound /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.stopped = @ \cup {<<k, i, t>>}]

(* ABORT: mark first, known or not. *)
hear_abort(k, i, t) ==
    /\ <<k, i, t>> \in s.said_abort /\ hears(k, i, t)
    /\ s' = [s EXCEPT !.tombstone = @ \cup {<<k, i, t>>}, !.stopped = @ \cup {<<k, i, t>>}]

(* ABORT_ACK: marked, nothing outstanding, no write of unknown fate. *)
send_ack(k, i, t) ==
    LET x == <<k, i, t>> IN
    /\ <<k, i>> \in s.current /\ x \in s.tombstone
    /\ If("poisoned_is_not_acked", x \notin s.poisoned)
    /\ If("ack_awaits_outstanding", is_idle(x))
    /\ s' = [s EXCEPT !.said_ack = @ \cup {x}]

(* FENCED: it frees what our writes read, and stops the attempt. *)
hear_fenced(k, i, t) ==
    /\ <<k, i, t>> \in s.said_fenced /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.heard_fenced = @ \cup {<<k, i, t>>}, !.stopped = @ \cup {<<k, i, t>>}]

-----------------------------------------------------------------------------
(* Prefill: forgetting, death, source pages.                                 *)

(* The state without the records of these destinations. *)
forget(gone) == [s EXCEPT !.bound = @ \ gone, !.bound_to = {x \in @ : <<x[1], x[2], x[3]>> \notin gone},
                          !.tombstone = @ \ gone, !.poisoned = @ \ gone]

(* Rule 9: that it is closed is remembered instead of its record. *)
hear_closed(k, i, t) ==
    LET x == <<k, i, t>> IN
    /\ <<k, i>> \in s.current /\ attempt_of[t] \in s.said_closed
    /\ s' = [forget({x}) EXCEPT !.closed = @ \cup {x}, !.stopped = @ \ {x}]

is_settled(x) == x \notin s.poisoned /\ is_idle(x)

(* A decode life is over for this rank: it is refused, and all of it stops. *)
bury(k, i, d) ==
    LET mine == {x \in There : x[1] = k /\ x[2] = i /\ decode_life_of(x[3]) = d}
        gone == {x \in mine : is_settled(x)} IN
    /\ <<k, i>> \in s.current
    /\ s' = [forget(gone) EXCEPT !.buried = @ \cup {<<k, i, d>>}, !.closed = @ \ mine,
                                 !.stopped = (@ \cup (mine \cap s.bound)) \ gone]

(* The last write of a buried attempt was reported on: its record goes too. *)
forget_buried(k, i, t) ==
    LET x == <<k, i, t>> IN
    /\ <<k, i>> \in s.current /\ <<k, i, decode_life_of(t)>> \in s.buried /\ is_settled(x)
    /\ s' = [forget({x}) EXCEPT !.stopped = @ \ {x}]

(* Something happened already in this life. *)
is_used(j) ==
    \/ \E k \in Rank : <<k, j>> \in s.current \/ <<k, j>> \in s.over
    \/ \E x \in s.granted \cup s.said_ack \cup s.said_done \cup s.bound \cup s.stopped \cup s.tombstone
             \cup s.poisoned \cup s.closed \cup s.heard_fenced : x[2] = j
    \/ \E x \in s.buried : x[2] = j
    \/ \E w \in s.dequeued : writer_life[w] = j

(* What a dead life launched goes on landing, except plain stores. *)
crash_prefill(k, i, j) ==
    /\ <<k, i>> \in s.current /\ ~is_used(j)
    /\ s' = [s EXCEPT !.over = @ \cup {<<k, i>>},
                      !.current = {x \in @ : x[1] # k} \cup {<<k, j>>},
                      !.flying = {w \in @ : ~(writer_life[w] = i /\ i \in plain_stores)}]

(* Rule 13: other content only when each write that reads it is over, by a proof. *)
reuse_source(k, i, a, q) ==
    LET is_free(w) == LET mine == <<k, i, target[w]>> IN
            \/ w \in s.settled \/ w \in s.source_fenced \/ mine \in s.heard_fenced
            \/ With("closed_frees_source") /\ mine \in s.closed
            \/ ~With("failed_holds_source") /\ mine \in s.stopped
            \/ ~With("poisoned_holds_source") /\ w \notin s.outstanding IN
    /\ <<k, i>> \in s.current
    /\ If("fresh_source_memory", source_memory_of[a] = i)
    /\ \A w \in s.dequeued : (source_page[w] = a /\ writer_life[w] = i) => is_free(w)
    /\ s' = [s EXCEPT !.source_holds = {x \in @ : x[1] # a} \cup {<<a, q>>}]

-----------------------------------------------------------------------------
(* The life of a write. Half of it is the library's, the kernel's or the NIC's. *)

(* A queued chunk gets its turn: counted before it is launched (rule 4). *)
dequeue(w) ==
    LET x == place_of(w) IN
    /\ w \notin s.dequeued
    /\ x \in s.bound /\ <<writer[w], writer_life[w]>> \in s.current
    /\ If("queue_is_dropped", x \notin s.stopped)
    /\ <<target_page[w], target[w]>> \in in_lease
    /\ <<x[1], x[2], x[3], payload[w]>> \in s.bound_to
    /\ <<source_page[w], payload[w]>> \in s.source_holds
    /\ If("fresh_source_memory", source_memory_of[source_page[w]] = writer_life[w])
    /\ s' = [s EXCEPT !.dequeued = @ \cup {w},
                      !.outstanding = IF With("count_rises_at_dequeue") THEN @ \cup {w} ELSE @]

(* A fenced destination takes nothing, however late. *)
launch(w) ==
    /\ w \in s.dequeued /\ w \notin s.launched /\ <<writer[w], writer_life[w]>> \in s.current
    /\ s' = [s EXCEPT !.launched = @ \cup {w}, !.reading = @ \cup {w},
                      !.flying = IF With("fence_is_permanent") /\ place_of(w) \in s.fenced THEN @ ELSE @ \cup {w},
                      !.outstanding = IF With("count_rises_at_dequeue") THEN @ ELSE @ \cup {w}]

(* The source is read at some time after the launch, whatever it holds by then. *)
read_source(w, q) ==
    /\ w \in s.reading /\ <<source_page[w], q>> \in s.source_holds
    /\ s' = [s EXCEPT !.reading = @ \ {w}, !.carries = @ \cup {<<w, q>>}]

is_hit(x, w) == x[1] = writer[w] /\ x[2] = target_page[w]

(* Some of the bytes land: the slice is whole no more, the tag beside it is the old one. *)
tear(w) ==
    /\ w \in s.flying /\ w \notin s.reading
    /\ s' = [s EXCEPT !.torn = @ \cup {w}, !.slice_holds = {x \in @ : ~is_hit(x, w)}]

(* The rest lands and the tag is stamped: only now is the write out of the air. *)
land(w) ==
    /\ w \in s.flying /\ w \notin s.reading
    /\ s' = [s EXCEPT !.flying = @ \ {w}, !.torn = @ \ {w}, !.placed = @ \cup {w},
                      !.slice_holds = {x \in @ : ~is_hit(x, w)}
                          \cup {<<writer[w], target_page[w], y[2]>> : y \in {z \in s.carries : z[1] = w}},
                      !.tag = {x \in @ : ~is_hit(x, w)} \cup {<<writer[w], target_page[w], target[w]>>}]

(* A write fails for good: what has not landed never will. *)
vanish(w) ==
    /\ w \in s.flying
    /\ s' = [s EXCEPT !.flying = @ \ {w}, !.reading = @ \ {w}]

(* The sender's own endpoint is joined: no source is read any more. No ack follows. *)
destroy_endpoint(k, i) ==
    LET mine == {w \in s.launched : writer[w] = k /\ writer_life[w] = i} IN
    /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.source_fenced = @ \cup mine, !.reading = @ \ mine,
                      !.flying = @ \ (s.reading \cap mine),
                      !.outstanding = IF With("source_fence_is_no_ack") THEN @ ELSE @ \ mine,
                      !.poisoned = IF With("source_fence_is_no_ack") THEN @ ELSE {x \in @ : x[1] # k \/ x[2] # i}]

is_reported(w) ==
    /\ <<writer[w], writer_life[w]>> \in s.current
    /\ w \in s.launched /\ w \in s.outstanding

landed(w) ==
    /\ is_reported(w)
    /\ If("landed_is_placed", w \in s.placed)
    /\ s' = [s EXCEPT !.outstanding = @ \ {w}, !.settled = @ \cup {w}]

failed_quiesced(w) ==
    /\ is_reported(w)
    /\ If("quiesced_cannot_land", w \notin s.flying /\ w \notin s.reading)
    /\ s' = [s EXCEPT !.outstanding = @ \ {w}, !.settled = @ \cup {w},
                      !.stopped = IF With("failure_stops") THEN @ \cup {place_of(w)} ELSE @]

(* Nobody knows: no ack, ever (rule 5), unless the destination is fenced. *)
failed_in_flight(w) ==
    LET x == place_of(w) IN
    /\ is_reported(w)
    /\ s' = [s EXCEPT !.outstanding = @ \ {w}, !.stopped = @ \cup {x},
                      !.poisoned = IF With("unknown_fate_poisons") /\ x \in s.bound /\ x \notin s.heard_fenced
                                   THEN @ \cup {x} ELSE @]

-----------------------------------------------------------------------------
(* Only while a protection is left out.                                      *)

abort_without_hold(t) ==
    /\ ~With("every_failure_holds") /\ is_undecided(t)
    /\ s' = [give_back(t) EXCEPT !.said_abort = @ \cup {x \in s.granted : x[3] = t}]

clock_frees(t) == ~With("no_clock_frees") /\ is_live(t) /\ t \in s.held /\ s' = give_back(t)

cache_failed(p, t) ==
    /\ ~With("only_committed_is_cached")
    /\ t \in s.held /\ t \in s.released /\ <<p, t>> \in in_lease
    /\ ~\E u \in Lease : is_live(u) /\ <<p, u>> \in in_lease
    /\ memory_of[p] \notin s.decode_dead
    /\ s' = [s EXCEPT !.prefix_tree = @ \cup {<<p, t>>}]

ack_unknown(k, i, t) ==
    /\ ~With("tombstone_before_ack")
    /\ <<k, i, t>> \in s.said_abort /\ hears(k, i, t) /\ <<k, i, t>> \notin s.bound
    /\ s' = [s EXCEPT !.said_ack = @ \cup {<<k, i, t>>}]

ack_closed(k, i, t) ==
    /\ ~With("closed_is_silent")
    /\ <<k, i, t>> \in s.said_abort /\ <<k, i>> \in s.current /\ <<k, i, t>> \in s.closed
    /\ s' = [s EXCEPT !.said_ack = @ \cup {<<k, i, t>>}]

ack_for_old_life(k, i, t) ==
    /\ ~With("acks_are_per_life")
    /\ \E j \in Life : <<k, j, t>> \in s.said_abort
    /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.said_ack = @ \cup {<<k, i, t>>}, !.tombstone = @ \cup {<<k, i, t>>},
                      !.stopped = @ \cup {<<k, i, t>>}]

forget_committed(k, i, t) ==
    LET x == <<k, i, t>> IN
    /\ ~With("record_outlives_commit")
    /\ x \in s.said_committed /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.bound = @ \ {x}, !.stopped = @ \ {x}, !.tombstone = @ \ {x}]

reopen(k, i, t) ==
    /\ ~With("closed_stays_closed")
    /\ <<k, i, t>> \in s.closed /\ <<k, i>> \in s.current
    /\ s' = [s EXCEPT !.closed = @ \ {<<k, i, t>>}]

-----------------------------------------------------------------------------

AtDecode ==
    \/ \E a \in Attempt : reserve(a) \/ say_closed(a)
    \/ \E t \in Lease : \/ commit(t) \/ finish(t) \/ abort(t) \/ release(t) \/ quarantine(t)
                        \/ abort_without_hold(t) \/ clock_frees(t)
    \/ \E k \in Rank, i \in Life, t \in Lease :
          \/ publish(k, i, t) \/ hear_bound(k, i, t) \/ hear_done(k, i, t) \/ fence(k, i, t) \/ fence_by_death(k, i, t)
          \/ \E other \in Lease : hear_ack(k, i, t, other)
    \/ \E p \in Page : \/ evict(p)
                       \/ \E t \in Lease : \/ cache(p, t) \/ cache_failed(p, t)
                                           \/ \E other \in Lease : share(t, p, other)
    \/ \E d \in DecodeLife : crash_decode(d)

AtPrefill ==
    \/ \E k \in Rank, i \in Life, t \in Lease :
          \/ \E q \in Request : bind(k, i, t, q)
          \/ send_done(k, i, t) \/ stop(k, i, t) \/ hear_abort(k, i, t) \/ send_ack(k, i, t) \/ hear_fenced(k, i, t)
          \/ hear_closed(k, i, t) \/ forget_buried(k, i, t)
          \/ ack_unknown(k, i, t) \/ ack_closed(k, i, t) \/ ack_for_old_life(k, i, t)
          \/ forget_committed(k, i, t) \/ reopen(k, i, t)
    \/ \E k \in Rank, i \in Life :
          \/ destroy_endpoint(k, i)
          \/ \E d \in DecodeLife : bury(k, i, d)
          \/ \E j \in Life : crash_prefill(k, i, j)
          \/ \E a \in Source, q \in Request : reuse_source(k, i, a, q)

OfWrites ==
    \E w \in Write :
       \/ dequeue(w) \/ launch(w) \/ tear(w) \/ land(w) \/ vanish(w)
       \/ \E q \in Request : read_source(w, q)
       \/ landed(w) \/ failed_quiesced(w) \/ failed_in_flight(w)

Next == AtDecode \/ AtPrefill \/ OfWrites
Spec == Init /\ [][Next]_s

-----------------------------------------------------------------------------
(* Section 7 of the protocol.                                                *)

no_wild_write ==
    \A w \in s.flying :
       /\ \A u \in Lease : (is_live(u) /\ <<target_page[w], u>> \in in_lease) => u = target[w]
       /\ is_live(target[w]) \/ decode_life_of(target[w]) \in s.decode_dead

no_wild_write_under_readers ==
    \A w \in s.flying : target[w] \notin s.committed /\ ~\E x \in s.prefix_tree : x[1] = target_page[w]

no_alias ==
    \A p \in Page, t \in Lease, u \in Lease : (is_live(t) /\ <<p, t>> \in in_lease) =>
       /\ (is_live(u) /\ <<p, u>> \in in_lease) => t = u
       /\ <<p, u>> \in s.prefix_tree => (t = u /\ t \in s.committed)

read_own ==
    \A t \in s.committed, u \in Lease, k \in Rank, p \in Page :
       (attempt_of[u] = attempt_of[t] /\ <<k, u>> \in fills /\ <<p, u>> \in in_lease) => holds_own(k, p, u)

read_own_shared == \A x \in s.prefix_tree, k \in Rank : <<k, x[2]>> \in fills => holds_own(k, x[1], x[2])
read_own_kept == \A x \in s.shares : \E y \in s.prefix_tree : y[1] = x[2]

no_early_ack ==
    \A w \in Write : (place_of(w) \in s.said_ack \/ place_of(w) \in s.said_done) =>
       w \notin s.flying /\ (w \notin s.outstanding \/ place_of(w) \in s.fenced)

no_wild_read == \A w \in s.flying \cap s.reading : <<source_page[w], payload[w]>> \in s.source_holds
no_poison == \A x \in s.prefix_tree : x[2] \in s.committed \/ (x[2] \in s.released /\ x[2] \notin s.held)
once == s.released_twice = {}
one_decision == \A t \in s.committed, u \in Lease : attempt_of[u] = attempt_of[t] => u \in s.committed

-----------------------------------------------------------------------------
(* What these rest on: at decode.                                            *)

only_minted == \A t \in s.held \cup s.committed \cup s.released : attempt_of[t] \in s.minted
committed_is_live == \A t \in s.committed : is_live(t) /\ t \notin s.held
granted_is_minted == \A x \in s.granted : attempt_of[x[3]] \in s.minted
abort_is_held == \A x \in s.said_abort : x \in s.granted /\ x[3] \in s.held
acked_was_said == s.acked \subseteq s.granted \cap s.said_ack
done_was_said == s.done \subseteq s.granted \cap s.said_done
fenced_is_held == \A x \in s.fenced : x[3] \in s.held
fence_was_proved == s.heard_fenced \subseteq s.said_fenced /\ s.said_fenced \subseteq s.fenced
committed_after_done ==
    /\ \A x \in s.granted : x[3] \in s.committed => x \in s.done
    /\ s.said_committed \subseteq s.said_done
released_is_proved == \A x \in s.granted : x[3] \in s.released => x \in s.acked \cup s.fenced \cup s.done
closed_is_over ==
    \A a \in s.said_closed : IF a \in s.minted THEN \A t \in Lease : attempt_of[t] = a => t \in s.released
                             ELSE passed_over(a)
lease_is_own_memory == \A x \in in_lease : attempt_of[x[2]] \in s.minted => memory_of[x[1]] = decode_life_of(x[2])
tree_is_alive ==
    \A x \in s.prefix_tree : x \in in_lease /\ attempt_of[x[2]] \in s.minted /\ memory_of[x[1]] \notin s.decode_dead
shared_is_own_memory == \A x \in s.shares : memory_of[x[2]] = decode_life_of(x[1])

-----------------------------------------------------------------------------
(* At prefill.                                                               *)

one_life_of_a_rank ==
    /\ \A x \in s.current, y \in s.current : x[1] = y[1] <=> x[2] = y[2]
    /\ \A x \in s.current, y \in s.over : x[2] # y[2]
dequeued_is_recorded ==
    \A w \in s.dequeued : LET x == place_of(w) IN <<x[1], x[2]>> \in s.current =>
       x \in s.bound \/ x \in s.closed \/ <<x[1], x[2], decode_life_of(x[3])>> \in s.buried
outstanding_is_bound ==
    \A w \in s.outstanding : LET x == place_of(w) IN
       (<<x[1], x[2]>> \in s.current /\ x \notin s.fenced) => x \in s.bound
bound_was_granted == s.bound \subseteq s.granted
closed_was_said == \A x \in s.closed : attempt_of[x[3]] \in s.said_closed
closed_has_no_record == s.closed \cap (s.bound \cup s.tombstone \cup s.poisoned) = {}
buried_is_stopped == \A x \in s.bound : <<x[1], x[2], decode_life_of(x[3])>> \in s.buried => x \in s.stopped
tombstone_stops == s.tombstone \subseteq s.stopped \cap s.said_abort
poison_stops == s.poisoned \subseteq s.bound \cap s.stopped
end_is_remembered ==
    \A x \in s.said_ack \cup s.said_done :
       /\ x \in s.granted
       /\ x \in s.bound => x \in s.stopped
       /\ <<x[1], x[2]>> \in s.current =>
             \/ x \in s.bound \cup s.tombstone \cup s.closed
             \/ <<x[1], x[2], decode_life_of(x[3])>> \in s.buried
done_is_clean == \A x \in s.said_done : x \in s.fenced \/ x \notin s.poisoned
bound_to_own_digest == \A x \in s.bound_to : has_own_digest(x[4], x[3])
one_source_content == \A x \in s.source_holds, y \in s.source_holds : x[1] = y[1] => x[2] = y[2]

-----------------------------------------------------------------------------
(* Of writes and tags.                                                       *)

dequeued_is_granted ==
    \A w \in s.dequeued : /\ place_of(w) \in s.granted /\ <<target_page[w], target[w]>> \in in_lease
                          /\ source_memory_of[source_page[w]] = writer_life[w]
                          /\ has_own_digest(payload[w], target[w])
dequeued_by_a_life == \A w \in s.dequeued : <<writer[w], writer_life[w]>> \in s.current \cup s.over
dequeued_is_counted == s.dequeued \ s.launched \subseteq s.outstanding
dequeued_keeps_source ==
    \A w \in s.dequeued \ s.launched :
       (<<writer[w], writer_life[w]>> \in s.current /\ place_of(w) \notin s.fenced)
          => <<source_page[w], payload[w]>> \in s.source_holds
write_in_order ==
    /\ s.launched \cup s.outstanding \subseteq s.dequeued
    /\ s.flying \cup s.reading \cup s.placed \cup s.settled \cup s.source_fenced \cup s.torn \subseteq s.launched
    /\ (s.placed \cup s.settled) \cap (s.flying \cup s.reading) = {}
    /\ s.source_fenced \cap s.reading = {}
flying_is_counted == \A w \in s.flying : w \in s.outstanding \/ place_of(w) \in s.poisoned
fenced_is_out == \A w \in s.flying : place_of(w) \notin s.fenced
plain_stores_end ==
    \A w \in s.flying : ~(<<writer[w], writer_life[w]>> \in s.over /\ writer_life[w] \in plain_stores)
carries_own ==
    \A x \in s.carries : x[1] \in s.launched \ s.reading /\ (x[1] \in s.flying => x[2] = payload[x[1]])
carries_something == \A w \in s.flying \ s.reading : \E x \in s.carries : x[1] = w
tag_is_minted == \A x \in s.tag : attempt_of[x[3]] \in s.minted
tag_covers ==
    \A x \in s.tag : (is_live(x[3]) /\ <<x[2], x[3]>> \in in_lease) =>
       \/ holds_own(x[1], x[2], x[3])
       \/ \E w \in s.torn : writer[w] = x[1] /\ target[w] = x[3] /\ target_page[w] = x[2]
torn_is_not_done ==
    \A w \in s.torn : LET x == place_of(w) IN
       /\ w \notin s.placed /\ w \in s.dequeued /\ x \notin s.said_done
       /\ w \in s.outstanding \/ x \in s.stopped \/ x \notin s.bound

=============================================================================

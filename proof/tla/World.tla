------------------------------- MODULE World --------------------------------
(* Push in worlds of stated sizes. Every lease has all pages of its decode   *)
(* life and rank, so an attempt gets its pages only after another gave them  *)
(* back; a prefill life has one source page for all requests; every request  *)
(* has the same room and another prompt.                                     *)
EXTENDS Push

CONSTANTS Ranks,        \* prefill ranks
          SpareLives,   \* lives that take over from dead ones
          DecodeLives,  \* attempts are theirs by turns
          DecodeRanks, Attempts,
          Pages,        \* of each decode life and rank
          Writes,       \* of each rank, life, lease and page
          Requests, Dummies

AllRanks == 1..Ranks
AllLives == 1..(Ranks + SpareLives)
AllDecodeLives == 1..DecodeLives
AllAttempts == 1..Attempts
AllRequests == 1..Requests
AllRooms == {1}

LifeOf == [a \in AllAttempts |-> 1 + ((a - 1) % DecodeLives)]
RoomOf == [a \in AllAttempts |-> 1]
Wanted == [a \in AllAttempts |-> 1 + ((a - 1) % Requests)]
Before == {x \in AllAttempts \X AllAttempts : x[1] < x[2] /\ LifeOf[x[1]] = LifeOf[x[2]]}
PrefillRoom == [q \in AllRequests |-> 1]
DigestOf == [q \in AllRequests |-> q]

AllLeases == AllAttempts \X (1..DecodeRanks)                       \* <<attempt, decode rank>>
AttemptOf == [t \in AllLeases |-> t[1]]
AllPages == AllDecodeLives \X (1..DecodeRanks) \X (1..Pages)       \* <<decode life, decode rank, number>>
MemoryOf == [p \in AllPages |-> p[1]]
InLease == {x \in AllPages \X AllLeases : x[1][1] = LifeOf[x[2][1]] /\ x[1][2] = x[2][2]}
Fills == {k \in AllRanks : k > Dummies} \X AllLeases

FirstLives == {<<k, k>> : k \in AllRanks}                          \* a rank may come to any spare life
AllSources == AllLives
SourceMemoryOf == [a \in AllSources |-> a]
PlainStores == {}

AllWrites == {w \in AllRanks \X AllLives \X AllLeases \X AllPages \X (1..Writes) :
                 /\ w[2] = w[1] \/ w[2] > Ranks
                 /\ <<w[1], w[3]>> \in Fills
                 /\ <<w[4], w[3]>> \in InLease}
Writer == [w \in AllWrites |-> w[1]]
WriterLife == [w \in AllWrites |-> w[2]]
Target == [w \in AllWrites |-> w[3]]
TargetPage == [w \in AllWrites |-> w[4]]
SourcePage == [w \in AllWrites |-> w[2]]
Payload == [w \in AllWrites |-> Wanted[w[3][1]]]

=============================================================================

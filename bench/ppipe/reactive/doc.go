// Package reactive is the run-time policy without reservations that PPipe
// compares itself with (USENIX ATC 2025, §7.4): every stage has a queue and
// decides for itself. It is a baseline of package reserve, for the simulator
// alone: batches are formed anew at every stage. It registers for plans of pools.
//
// At each stage the head's worker is the one that is free first, over all
// pipelines of the model at the first stage. What is left of the deadline for
// the batch is the rest that the planned times of the later stages and transfers leave,
// as if nobody waited there: the policy knows nothing of queues at links or at
// the next stage. A head is dropped at its first look unless 95 to 100 % of the
// planned batch fits, later only if nothing does. Its timer counts neither the
// transfer nor the worker's remaining work.
//
// Facts about the baseline are the public artifact's. Two things differ: a batch
// is formed before its transfer, not behind it, so that the transfer holds both
// ends of the way to its worker; and a batch whose requests come from several
// devices crosses from where the last of them is.
package reactive

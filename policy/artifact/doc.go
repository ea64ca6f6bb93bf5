// Package artifact dispatches as the simulator of PPipe's public artifact does
// (USENIX ATC 2025; described in words, with its quirks), so that a plan of
// others can be judged by its own policy. It is the baseline of package
// reserve, which differs where this one errs:
//
//   - A head is dropped at its first look unless a batch of 95 to 100 % of the
//     planned size is in time; only later looks go down to one.
//   - The pipeline that waits least at its planned batch is taken, the first of
//     equals, and no other is tried; one of single requests that would be late
//     counts as waiting an SLO longer.
//   - A resource is known by its tail: the end of what was reserved last. Gaps
//     are never filled.
//   - In a stage that sends on, a device is chosen by the later of its finish
//     and its uplink's tail, but time advances by the finish alone.
//   - Reservations are not corrected by what happens, and what is dispatched
//     goes at once, to a busy device, too.
//   - Transfers hold the sender's uplink; the receiver's downlink is reserved
//     but nothing waits for it.
//
// Run it on policy.TopologyStages for the artifact's figures. Lost devices are
// beyond the artifact; here their batches are queued again.
package artifact

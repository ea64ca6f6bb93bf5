// Package artifact is a policy that dispatches as the simulator of PPipe's public artifact does (USENIX ATC 2025;
// described in words, with its quirks), so that plans made by others can be judged by their own policy. It is the
// baseline of package reserve. It differs from that package as follows:
//
//   - A head is dropped at its first look unless a batch of 95 to 100 % of the planned size is in time. Only later looks try
//     batches down to one.
//   - The pipeline that waits least at its planned batch is taken (the first of equals), and no other is tried. A pipeline of
//     single requests that would be late counts as waiting an SLO longer.
//   - A resource is known by its tail: the end of its last reservation. Gaps are never filled.
//   - If a stage sends to another one, a device is chosen by the later of its finish and its uplink's tail, but the next stage
//     starts from the finish alone.
//   - Reservations are not corrected by actual times, and a batch is sent at once, even to a busy device.
//   - Transfers hold the sender's uplink. The receiver's downlink is reserved, but no transfer waits for it.
//
// Words: the head is the first request of a model's queue. Its first look is the first decision about it. A tail
// is the end of the last reservation of a device or link.
//
// Use policy.TopologyStages to reproduce the artifact's figures. The artifact knows no lost devices; here the
// requests of their batches are queued again.
package artifact

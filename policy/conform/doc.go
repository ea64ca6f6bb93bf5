// Package conform records what a policy was told and what it answered, and
// holds another policy against the record.
//
// Recorder wraps a policy: give it to the simulator or the executor in the
// policy's place, and every call is written to a log. Replay feeds the log's
// events to a fresh policy and compares the action bytes of every call. A log
// that the executor wrote and that replays without a difference shows that the
// executor changed nothing about the decisions, and so does one of the
// simulator: both then run the same policy. `plan replay` is this for a person.
//
// The log is a header line and then, per call, two byte strings with their
// lengths as uvarints: the event (policy.AppendEvent) and the actions
// (policy.AppendActions). Logs of version 1, from before requests had tasks, are
// read as well.
package conform

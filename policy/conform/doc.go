// Package conform records the events that a policy handles and its actions, and compares another policy with the
// record.
//
// Recorder wraps a policy: give it to the simulator or the executor in the policy's place, and every call is
// written to a log. Replay feeds the log's events to a fresh policy and compares the bytes of the actions of every
// call. If a log of the executor replays without a difference, the executor has changed nothing about the
// decisions; the same holds for a log of the simulator. Both then run the same policy. `plan replay` does this on
// the command line.
//
// Words: a call is one call of Handle, with its event and actions. A record is one byte string of a log.
//
// A log is a header line and then, per call, two records with their lengths as uvarints: the event
// (policy.AppendEvent) and the actions (policy.AppendActions). Logs of version 1, in which requests had no tasks,
// can be read as well.
package conform

// Package deltas handles answers of language models that are more than one text: several choices, calls of tools,
// log probabilities, reasoning besides the answer.
//
// A server streams such an answer as events. An event holds pieces of some choices. An answer is stored as its
// log: one line per event, with the event's choices as the server wrote them. No field of an event is dropped,
// whether it is known or not.
//
// Vocabulary:
//
//   - Choice: one of the alternative answers of a request. Piece: the part of it in one event.
//
//   - Log: the events of an answer, a line each. A restart line revokes all lines before it.
//
//   - Run: one generation of the answer, the first or a repeated one.
//
//   - Sent: what the client has received from earlier runs.
//
//     Read in this order:
//
//     log.go    lines of a log, and the complete answer that they make
//     merge.go  how the pieces of a choice are joined
//     run.go    a run of an answer, compared with what was sent
//
// A server cannot continue such an answer, because a prompt cannot hold all of it. So an answer that broke off is
// generated again. A client that has received nothing gets the new answer (RestartLine). For another client the
// new answer must begin with what was sent (AnswerRun). Otherwise the answer fails with ErrDiffers.
package deltas

// Package deltas is about answers of language models that are more than a text: several
// choices, calls of tools, log probabilities, reasoning apart from the answer.
//
// A server streams such an answer as events. Each has some choices with a piece of what
// they hold. What is kept of an answer is its log: a line for each event, which is the
// event's choices as the server wrote them. Nothing of an event is left out, whatever
// its fields mean.
//
//	log.go    lines of a log, and the answer in one that they make
//	merge.go  how pieces of an answer are put together
//	run.go    an answer that is written, or written again and compared
//
// A server cannot be asked to continue such an answer: what it wrote is not all in the
// prompt. It is asked for all of it again. A client that has seen nothing gets the new
// one (Anew). For another the new one must begin with what was sent (Run), else the
// answer cannot go on (ErrDiffers).
package deltas

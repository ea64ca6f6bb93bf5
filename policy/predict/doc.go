// Package predict says which way a request will go: the tasks that a dynamic
// workflow will ask for, learnt from requests that have ended.
//
// # What is counted
//
// DyOrc (§5.2) counts, per application and prefix of tasks, which service came
// next, and predicts with a Markov model over these counts. A count of services
// alone says nothing of what a predicted task reads or of how long it runs. So a
// token here is a service with its work and with the tasks that it reads, as
// offsets back in the request's list of tasks. Token 0 is the end of a request.
//
// A row is counted per application and full prefix. A row with fewer than
// Options.Least samples backs off to the row of the last token alone, and then
// to the end. The first segment of a request is known when it comes and is never
// predicted, so it is not counted either.
//
// # Features
//
// A request may carry a feature: a bucket of what is known of it when it
// arrives, such as a hash of its topic. Rows are then counted per feature, too.
// Which of the two predicts is decided per application by what has predicted
// better so far (Table.learn scores both).
//
// # Use
//
// Begin gives a Cursor, Advance moves it along a token that became known, Ahead
// gives the most likely (or a sampled) way on, and Shares the chances of the next
// token. Learn takes a request that has ended. In steady state, when no prefix is
// new, nothing allocates. A prefix table grows up to Options.Rows rows.
//
// table.go has rows and learning, ahead.go prediction, and tokens.go the tokens.
package predict

// Package predict predicts the tasks that a request of a dynamic workflow will ask for, from requests that have ended.
//
// Vocabulary:
//
//   - Token: a service with its work and with the tasks that it reads, as offsets back in the request's list of tasks.
//   - Prefix: the tokens of a request so far. Row: what followed a prefix, or followed a last token, with counts.
//   - Cursor: the rows that a request has come to. To back off: to use the row of the last token alone.
//   - Feature: a bucket of what is known of a request at its arrival.
//
// # What is counted
//
// DyOrc (§5.2) counts, per application and prefix of tasks, which service came next, and predicts with a Markov model
// over these counts. A count of services alone does not say what a predicted task reads or how long it runs. So tokens
// are counted here. Token 0 is the end of a request.
//
// A row is counted per application and full prefix. A row with fewer than Options.MinSamples samples backs off to the
// row of the last token alone, and then to the end. The first segment of a request is known at its arrival and is never
// predicted, so it is not counted either.
//
// # Features
//
// A request may carry a feature, such as a hash of its topic. Rows are then counted per feature, too. Which of the two
// rows predicts is decided per application, by which was right more often so far (TransitionTable.scoreRows).
//
// # Use
//
// CursorAtStart returns a Cursor, Advance moves it along a token that became known, PredictTokens gives the likeliest
// (or sampled) tokens up to the end, and NextChances the chances of the next token. Learn counts a request that has
// ended. In steady state, when no prefix is new, nothing is allocated.
//
// Order of reading: tokens.go, table.go (rows and learning), prediction.go (prediction).
package predict

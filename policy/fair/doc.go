// Package fair shares among clients what the devices of a plan carry. Policies do not
// know clients: whoever comes first is served first, and a client that sends enough
// takes everything. So simulator and executor ask here before a policy hears of a
// request.
//
// A model has room for the requests that its devices can answer in time. While more are
// inside and several clients send, a client is let in that was let in less than its
// share of late. Shares are max-min fair: who sends less than an equal part of what is
// carried keeps all of it, and the others divide the rest. A client that is alone is
// never refused: policies know better what can be in time.
//
//	shares.go  Shares: who is let in
//	client.go  what is known of a client
package fair

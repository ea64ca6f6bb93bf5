// Package fair shares the capacity of a plan's devices among clients. Policies do not know clients: without this package,
// requests are served in the order of arrival, and a client that sends enough takes everything. So simulator and
// executor ask here before a policy is told of a request.
//
// A model has capacity for as many open requests as its devices can answer in time. While more are open and several
// clients send, a client is admitted only if it was admitted less than its share of late. Shares are max-min fair: a
// client that sends less than an equal part of the rate keeps all of it, and the others divide the rest. A client that
// is alone is never refused, because policies know better what can be in time.
//
// Vocabulary: the fair rate is the rate that each of the clients that send most may have. Health is the part of the planned
// rate that seems to be available, by the answers that were late.
//
//	shares.go  ClientShares: decides which requests are admitted
//	client.go  the rates of a client
package fair

// Package balance sends every request to language models on at once, as a load
// balancer in front of servers does: to the instance with the fewest requests
// among those that may run its model, the lowest numbered of equals. What happens
// there is the server's: first come, first served, or by priority, with
// pre-emption for want of KV memory alone (vLLM's --scheduling-policy). An
// instance whose next request asks for another model drains, swaps, and goes on.
//
// It is a baseline: nothing is ordered across instances, and nothing is evicted.
package balance

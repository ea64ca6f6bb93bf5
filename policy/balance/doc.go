// Package balance is the baseline that sends every request to a language model on at once, as a load balancer in
// front of servers does: to the instance with the fewest requests among those that may run its network, the lowest
// numbered of equals. The server then decides the order: first come, first served, or by priority, with
// pre-emption only for want of KV memory (vLLM's --scheduling-policy). If an instance's next request needs another
// network, the instance runs out, changes its network, and goes on.
//
// No requests are ordered across instances, and none is evicted.
//
// Words: a network is the weights that an instance loads; several served models may share it. An instance is
// loaded if its network is ready to serve.
package balance

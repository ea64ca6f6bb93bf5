// Package text answers requests for text, by plans of queues and by language models in
// applications, at servers of language models (engine/llm).
//
// # Queues
//
// The front end (package completions) asks Queues, which hand its requests to the core of
// the plan in force. An instance is a server, or a share of one, that a plan deploys; an
// agent is the backend of one instance. What an agent does at its servers is behind the
// interface hand: in this process, or in that of plan agent, to which the store of
// requests carries orders. Of the processes that share a store one plans.
//
//	options.go       where servers, adapters and agents of instances are
//	queues.go        requests between the front end and the core; queuetext.go: one of them
//	queueanswer.go   how a request ends
//	queueserve.go    starts it all; queueplan.go: where several processes share a store
//	queuemetrics.go  series; queuepage.go: the page of the queues
//	queuelearn.go    what is served against what was planned
//	agents.go        the backend of instances; agent.go: one of them
//	agentstream.go   a request at a server
//	agentevents.go   answers that are more than a text
//	agentwatch.go    what an agent knows of its server
//	agenthand.go     what is done at servers of this process; agentwrite.go: answers
//	agentadapters.go adapters of models
//	agentaway.go     orders to other processes; agentwire.go: their form
//	agentprocess.go  the process that takes orders; agentplace.go: one of its instances
//	agentrun.go      its requests; agenttell.go: what it sends to who plans
//	agentterm.go     whose orders count; agentrefused.go: messages that are none of ours
//
// # Language models in applications
//
//	generators.go   the backend of their devices; generator.go: one of them
//	serverwatch.go  looks after the servers of both
package text

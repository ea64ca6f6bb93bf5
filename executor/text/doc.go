// Package text has requests for text answered by servers of language models (package engine/llm). It serves plans of
// queues, and the language models that are modules of applications.
//
// Vocabulary:
//
//   - Queues: what the front end (package completions) asks. It hands requests to the core of the plan in force.
//   - Instance: a server of language models, or one server per model, that a plan of queues deploys.
//   - Agent: the part of a process that has the requests of one instance answered (instanceAgent). In plan agent it
//     is a process of its own (agentProcess).
//   - Server control: what an agent does at its servers (serverControl): at servers that this process calls
//     (localServers), or by orders to the process of plan agent (remoteServers).
//   - Run: one attempt to have a request answered by a server. A request has several runs if it is evicted or its
//     server breaks off. Only the run with the current number may add text (requestText).
//   - Order: a message from the process that plans to an agent (AgentOrder). A long order prepares, loads or unloads
//     a model, and is polled until it is done.
//   - Update: a message from an agent about a run (RunUpdate).
//   - Term: the number of the period in which one process plans. Of the processes that share a store one plans.
//     Orders of earlier terms do not count.
//   - Broken request: one whose server broke off. It waits until it is known whether the server is gone.
//   - Generator: a device that runs a language model for a module of an application. A generation is a prompt that
//     its server answers.
//
// # Queues
//
// Order of reading: queues.go, queuetext.go and queueanswer.go (a request from the front end to its end); agents.go,
// agent.go, agentstream.go and agentwatch.go (the backend of instances); agentlocal.go, agentanswer.go, agentevents.go
// and agentadapters.go (what is done at the servers of this process); agentremote.go and agentwire.go (orders to other
// processes); agentprocess.go, agentinstance.go, agentrun.go, agentruns.go, agentupdates.go, agentterm.go and
// agentrefused.go (the process that receives the orders); queuefront.go and queueplanner.go (how it all starts, and
// which process plans); queuemetrics.go, queuestate.go and queuemonitor.go (series, the state of the queues, and whether
// another plan is due); options.go. Servers that come and
// go: discovery.go (which instance each takes), serversources.go (what lists them), instanceservers.go (an instance
// changes its server). Requests that pass through: forward.go.
//
// # Language models in applications
//
// Order of reading: generators.go (the backend), generator.go (one device); serverbackend.go and serverwatch.go (what both
// backends have in common, and the watch of their servers).
package text

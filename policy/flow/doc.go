// Package flow has what all policies of applications share at run time: graphs of modules as tables, the choice of the
// next tasks of a request, and a table of requests and tasks.
//
// Vocabulary, beside docs/glossary.md:
//
//   - Service: a module as policies see it. Node: a step of an application that asks for a service.
//   - Task: a node that a request has come to. It is revealed once its inputs have ended.
//   - Outcome: which of several ways on a request takes behind a node; the result of that node's task.
//   - Segment (of a workflow): steps whose tasks are revealed at once. Branch: a way on behind a segment.
//   - Item: a step may run once for each item of a list. Route: one of the models that may run a step.
//   - Shared tables: the policy.Tables of a plan, beside which stand those of its kind.
//   - Session state: what a service keeps of a request from one task to the next.
//   - Generation step: a step that asks a language model for tokens.
//
// A node that reads several others is a merge: it is revealed once those of its inputs have ended that the request came
// to. A node that no request can come to any more is skipped, so that a merge does not wait for it. All of that is
// decided here, once for both interpreters. A request is dropped as a whole: none of its tasks is revealed any more.
//
// # Workflows
//
// A workflow has segments in place of a graph. The segment that follows is chosen when the last task of a segment has
// ended. How often a module runs, which model runs it and where a request goes on is asked of Choices: the simulator
// draws, a server evaluates the conditions.
//
// Order of reading:
//
//	tables.go           graphs, paths and scaling as tables; compiles plans
//	control.go          the next tasks of a request of a graph (policy.Control)
//	demand.go           how many workers are wanted, by the arrivals at the entry
//	tasks.go            requests and tasks, for policies
//	workflows.go        segments as tables
//	workflowcontrol.go  the next tasks of a request of a workflow; choices by chance
//	conditions.go       choices by the conditions of the plan
//	visits.go           visit counts, demands and paths of segments, for planning
//	session.go          session states
//	recorder.go         records the paths of requests
//	generation.go and generation_profile.go  language models as services
package flow

// Package workflows has the applications that DyOrc is measured with, for runs of
// package sim: GILL, KNOWLEDGECARD and DEBATE, and the fleets that serve them.
//
// A request is a list of segments that only it knows. A segment is a small graph
// of tasks, all of which are asked for at once. What comes behind it is seen when
// its last task has ended (control.go). The generators (apps.go) draw every
// request from a stream of its application, in order of arrival, so that all
// policies get the same requests.
//
// The language models run in batches of fixed times, or iteration by iteration
// (generations.go).
//
// flow_rag.go has applications that answer from documents, as they are planned: profile, workload
// and cluster.
//
// # Where the figures come from
//
// DyOrc gives no service times and no probabilities. Those of fleet.go and
// apps.go are assumptions: Llama-2-7B from public measurements on an A100
// (1.65 s for 128 tokens, 2.01 s with 16 requests at once), the others in
// proportion to their size. GILL draws an image for nine requests of ten, which
// puts the accuracy of a prediction into the range of DyOrc's figure 12.
package workflows

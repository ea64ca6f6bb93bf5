// Package diff finds the differences between two documents of one kind.
//
// Plans compares two plans: objective, models, pipelines, devices, policy, options and inputs. Profiles compares
// two profiles and lists every block whose latency changed by more than a tolerance, or the model if all of its
// blocks did. Reports compares the outcomes of requests.
//
// A comparison is a Result: a list of Changes in the order of the document. Each has a section, the path of the
// changed field, the values on both sides and, for numbers, the relative change. For plans, a summary says on one
// line what a switch from one to the other means. Result writes lines for people (Lines, Markdown), and its JSON
// form is the type itself. For another kind of document, add a function that fills a Result through the Recorder.
//
// Read diff.go first, then plans.go with gear.go, queue.go and flow.go for the sections, profiles.go and
// reports.go. summary.go writes the summary of plans.
package diff

// Package diff tells what moved between two documents of one kind.
//
// Plans compares two plans: objective, models, pipelines, devices, policy,
// options and inputs. Profiles compares two profiles and names every block
// whose latency moved by more than a tolerance, or the model where all did.
// Reports compares what became of requests.
//
// A comparison is a Result: a list of Changes in the order of the document,
// each with a section, the path of what moved, the values on both sides and,
// for numbers, the relative change. Of plans a summary says on one line what a
// switch means. Result writes lines for people (Lines, Markdown) and
// is itself the JSON form. Another kind of document slots in as one more
// function that fills a Result through the recorder of this package.
package diff

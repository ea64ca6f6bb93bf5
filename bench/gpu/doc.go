// Command gpu tries out everything that needs a GPU, in steps, and says of each figure that this project promises whether the
// device at hand keeps it. gpu-check.sh calls it once for each part of a step, under a time limit, on a machine that one has for
// minutes. What a part found is a line of gpu-check.jsonl, and text for people in gpu-check.txt. On the CPU (-device cpu) the same
// steps run at small sizes, to try out the check itself: what such a rehearsal measures says nothing about a GPU.
//
//	gpu [FLAGS] list          the parts in the order of their worth: seconds needed, limit, and how each ended so far
//	gpu [FLAGS] STEP[/PART]   runs a part
//
// Steps drive the verbs of plan as a user would, and their text has what these print. Read main.go (the table of steps and their
// results), program.go (verbs of plan), device.go (answers, copies and loads of an engine), profiles.go and served.go.
package main

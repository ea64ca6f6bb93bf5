// Package placement puts models and stages on single devices, and splits the work of cascades over them. Placements
// are ranked by what they allow if nothing queues. The vocabulary is that of planner/gear.
//
// Order of reading:
//
//	layout.go        Layout: a placement device by device, and its groups (solver/refine)
//	split.go         the split with the least load of the busiest device, by a linear program, and bounds from its duals
//	loaded.go        LoadedCascade: a cascade with its split, and the front of cascades on a layout
//	concentrated.go  a split that uses few devices per model
//	ranked.go        placements ordered by what the fluid model allows them, all or those that move few devices of what runs
package placement

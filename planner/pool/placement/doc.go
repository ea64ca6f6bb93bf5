// Package placement makes plans of whole replicas: it computes a plan from its replica counts, packs the replicas onto
// physical devices, and counts the devices that a plan moves beside the one that runs.
//
// Vocabulary:
//
//   - Plan: pipelines of templates with whole replicas of each stage, and what they reach. It names templates by their
//     index in a catalogue.
//   - Piece: equal replicas of one stage of a pipeline. A bin holds the pieces of one device.
//   - Content: the blocks, kind and share that a replica holds in a device. A device moves if a new plan makes it load
//     content that it does not hold.
//
// The files, in the order of the step:
//
//	replicaplan.go  computes a plan anew from its integer replica counts
//	place.go        packs replicas onto physical devices
//	spread.go       spreads loaded devices over nodes, for their NICs
//	contents.go     the contents of devices, and packing around them
//	moves.go        the plan that runs, and the devices that another one moves
//	adopt.go        pipelines that others chose, with our costs and placement
package placement

package placement

import (
	"context"
	"math"
	"slices"

	"inferplan/planner/gear/cascades"
)

// LoadedCascade is a cascade on a placement with a split of its work. Loads are in seconds per request.
type LoadedCascade struct {
	Cascade             *cascades.Cascade
	DeviceLoad, MaxLoad float64     // of the busiest device, and of the busiest device or NIC
	Shares              [][]float64 // by model and replica
}

// maxFilledShare is the part of the remaining time of a device that a split with shorter batches may use.
const maxFilledShare = .7

// LoadCascade returns a cascade, by its index in the space, with the split of its work over the devices that loads the
// busiest one least. Loads are in seconds of work per request. If the layout lacks one of its models, the loads are
// infinite.
func (l *Layout) LoadCascade(ctx context.Context, cascade int) (*LoadedCascade, error) {
	s, err := l.BestSplit(ctx, cascade)
	if err != nil || s.groupShares == nil {
		return &LoadedCascade{DeviceLoad: math.Inf(1), MaxLoad: math.Inf(1)}, err
	}
	return &LoadedCascade{&l.Space.Cascades[cascade], s.deviceLoad, s.MaxLoad, l.ReplicaShares(s)}, nil
}

// ShortBatchSplit returns a cascade with a split of its work that keeps batches short, to be tried if the one of least
// load is too late. maxLoad is the least possible load of the busiest device, and loadLimit that at which the device is
// always busy, both in seconds per request. The split may raise the load from maxLoad by maxFilledShare of the way to
// loadLimit. If no such split exists, it returns nil.
func (l *Layout) ShortBatchSplit(ctx context.Context, cascade int, maxLoad, loadLimit float64) (*LoadedCascade, error) {
	s, err := l.solveSplit(ctx, cascade, maxLoad+maxFilledShare*(loadLimit-maxLoad))
	if err != nil || s.groupShares == nil || s.MaxLoad >= loadLimit {
		return nil, err
	}
	return &LoadedCascade{&l.Space.Cascades[cascade], s.deviceLoad, s.MaxLoad, l.ReplicaShares(s)}, nil
}

// FeasibleFront returns, by rising load and accuracy, the cascades that no other one beats in accuracy with less load
// and that the devices and network cards have time for at a rate (requests per second), each with its split. Only
// cascades with more than minCorrect correct answers to the planning samples count; -1 admits all.
func (l *Layout) FeasibleFront(ctx context.Context, rate float64, minCorrect int32) (list []LoadedCascade, err error) {
	front, err := l.CascadeFront(ctx, minCorrect)
	if err != nil {
		return nil, err
	}
	for _, cascade := range front {
		if l.LoadLowerBound(cascade)*rate > 1 {
			break
		}
		s, err := l.LoadCascade(ctx, cascade)
		if err != nil || s.MaxLoad*rate > 1 {
			return list, err
		}
		list = append(list, *s)
	}
	return list, nil
}

// CascadeFront returns, by rising load, the cascades with more than minCorrect correct answers to the planning samples
// that no other of these beats with less load. A load takes a linear program to compute, but
// solved programs bound the loads of the other cascades from below. So it solves only the cascades on the front of
// loads and bounds, until all of that front are solved. A cascade that its bound excludes is also excluded by its load.
func (l *Layout) CascadeFront(ctx context.Context, minCorrect int32) ([]int, error) {
	space := l.Space
	loadBounds := make([]float64, len(space.Cascades))
	for {
		// Take the load if it is known, else its bound.
		for i := range space.Cascades {
			loadBounds[i] = math.Inf(1)
			if space.Cascades[i].CorrectCount <= minCorrect {
				continue
			}
			loadBounds[i] = l.LoadLowerBound(i)
			if s, ok := l.splits[i]; ok {
				loadBounds[i] = s.MaxLoad
			}
		}

		// Solve the programs of the cascades on this front.
		front, solvedMore := cascades.ParetoFront(loadBounds, space.Cascades), false
		for _, i := range front {
			if _, ok := l.splits[i]; ok {
				continue
			}
			solvedMore = true
			if _, err := l.BestSplit(ctx, i); err != nil {
				return nil, err
			}
		}
		if !solvedMore {
			return front, nil
		}
	}
}

// LightestCascade returns the cascade that takes the least device time, among those whose models the placement
// has. If there is none, it returns -1.
func (l *Layout) LightestCascade() int {
	return l.Space.Lightest(l.CheapestCosts(slices.Repeat([]float64{1}, len(l.DeviceGroups)), nil))
}

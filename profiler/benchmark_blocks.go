package profiler

import (
	"fmt"
	"strings"
	"time"

	"inferplan/engine/graph"
	"inferplan/formats"
)

// layersNameFormat makes the name of a block of layers, from which a later import learns where it was cut.
const layersNameFormat = "layers %d-%d"

// byTime groups the layers of the engine into blocks of about equal time, the same blocks in all runs. It is
// for imports without the model's file.
func (im *benchmarkImport) byTime() error {
	// All runs must have the same layers.
	firstLayers := im.options.Runs[0].Layers.Layers
	for _, r := range im.options.Runs[1:] {
		for i := range max(len(firstLayers), len(r.Layers.Layers)) {
			a, b := "nothing", "nothing"
			if i < len(firstLayers) {
				a = firstLayers[i].Name
			}
			if i < len(r.Layers.Layers) {
				b = r.Layers.Layers[i].Name
			}
			if a != b {
				return inputError("%s: layer %d is %q, in %s it is %q: without the model's file (--model) all runs must be of one engine, built for a range of batch sizes", r.Name, i, b, im.options.Runs[0].Name, a)
			}
		}
	}

	// Group by the layers' shares of the time, summed over the runs. The zeros are the bytes that cross each cut,
	// which are unknown. Bounds that an earlier import stored in the profile take precedence.
	costs := make([]float64, len(firstLayers))
	for _, r := range im.options.Runs {
		for i, l := range r.Layers.Layers {
			costs[i] += l.Time.Seconds() / r.Layers.Total().Seconds()
		}
	}
	bounds := graph.GroupParts(costs, make([]int64, len(costs)+1), im.options.Blocks)
	if known := im.profileModel(); known != nil {
		var err error
		if bounds, err = layerBounds(known, len(firstLayers)); err != nil {
			return err
		}
	}

	// Sum the times by block.
	for k := range bounds[1:] {
		im.blocks = append(im.blocks, formats.Block{Name: fmt.Sprintf(layersNameFormat, bounds[k], bounds[k+1]-1)})
	}
	for _, r := range im.options.Runs {
		times := make([]time.Duration, len(im.blocks))
		for k := range times {
			for _, l := range r.Layers.Layers[bounds[k]:bounds[k+1]] {
				times[k] += l.Time
			}
		}
		im.times = append(im.times, times)
	}
	im.notes = append(im.notes, fmt.Sprintf("%d layers in %d blocks by time; what crosses between them is not known without the model's file", len(firstLayers), len(im.blocks)))
	return nil
}

// layerBounds returns where an earlier import of m divided its layers into blocks: the first layer of each block,
// and the number of layers. It reads them from the names of the blocks, and returns an error if these are others or
// do not have that many layers.
func layerBounds(m *formats.ProfileModel, layers int) ([]int, error) {
	bounds := []int{0}
	for _, b := range m.Blocks {
		var firstLayer, lastLayer int
		if n, err := fmt.Sscanf(b.Name, layersNameFormat, &firstLayer, &lastLayer); n != 2 || err != nil || firstLayer != bounds[len(bounds)-1] || lastLayer < firstLayer {
			return nil, inputError("%s is cut otherwise in the profile (block %s): give its file (--model), or write another profile (-o)", m.Model, b.Name)
		}
		bounds = append(bounds, lastLayer+1)
	}
	if bounds[len(bounds)-1] != layers {
		return nil, inputError("%s has %d layers in the profile, %d here: give its file (--model), or write another profile (-o)", m.Model, bounds[len(bounds)-1], layers)
	}
	return bounds, nil
}

// byGraph groups the parts of the model's graph into blocks of about equal time, the same blocks in all runs, and
// sums the layers' times by block. It cuts only where no layer of the engine spans the cut.
func (im *benchmarkImport) byGraph() error {
	if im.chain == nil {
		return inputError("%s cannot be cut (%s): import its times alone", im.options.File, strings.Join(im.model.info().warnings, "; "))
	}

	// A layer forbids the cuts inside its span.
	names := newOperators(im.chain, im.options.Benchmark)
	spans := make([][]atomSpan, len(im.options.Runs))
	forbiddenBy := make([]string, im.chain.AtomCount()+1) // by cut: the name of the layer that forbids it
	for i, r := range im.options.Runs {
		var err error
		if spans[i], err = names.match(r); err != nil {
			return err
		}
		for _, s := range spans[i] {
			for c := s.firstAtom + 1; c <= s.lastAtom; c++ {
				forbiddenBy[c] = s.layer
			}
		}
	}
	var cuts []int // allowed cuts, with both ends
	var cross []int64
	for c, layer := range forbiddenBy {
		if layer == "" {
			cuts = append(cuts, c)
			cross = append(cross, im.chain.Cuts[c].Bytes)
		}
	}

	// Group the parts between the allowed cuts. cross holds the bytes that cross each. bounds are indices into cuts.
	costs := make([]float64, len(cuts)-1)
	for i, r := range im.options.Runs {
		for k, t := range sumByBlock(cuts, spans[i]) {
			costs[k] += t.Seconds() / r.Layers.Total().Seconds()
		}
	}
	bounds := graph.GroupParts(costs, cross, im.options.Blocks)
	chosen := make([]int, len(bounds))
	for k, b := range bounds {
		chosen[k] = cuts[b]
	}

	// Cuts that the profile has already take precedence.
	if h := im.profileModel(); h != nil {
		knownBlocks, err := im.chain.CutAt(cutNames(h.Blocks))
		if err != nil {
			return fmt.Errorf("%w: the profile's blocks of %s cannot be made again: %w", ErrInput, im.options.Model, err)
		}
		for _, c := range knownBlocks.Bounds {
			if forbiddenBy[c] != "" {
				return inputError("%s is cut at %s in the profile, inside the layer %q: write another profile (-o)", im.options.Model, strings.Join(im.chain.Cuts[c].Names(), ", "), forbiddenBy[c])
			}
		}
		chosen = knownBlocks.Bounds
	}

	// Sum the times by block.
	im.blocks = describeBlocks(&graph.Blocks{Chain: im.chain, Bounds: chosen})
	for i := range im.options.Runs {
		im.times = append(im.times, sumByBlock(chosen, spans[i]))
	}
	im.notes = append(im.notes, fmt.Sprintf("%d layers in %d blocks at %d of the model's %d cuts", len(im.options.Runs[0].Layers.Layers), len(im.blocks), len(cuts)-2, im.chain.AtomCount()-1))
	return nil
}

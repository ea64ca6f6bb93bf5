package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"inferplan/formats/csvfile"
)

// profiles are the times of models in milliseconds, by source and model. The first is of a batch of one, the next of two, and so on.
type profiles map[string][]float64

// sources are files of measured latencies. Of the first only those of one device count.
var sources = []struct{ file, name, times, device string }{
	{"proteus_variants.csv", "proteus/", "p50_ms", "onnxruntime_gpu_pascal"},
	{"loki_pipeline_runtimes.csv", "loki/", "p50_ms", ""},
	{"nexus_vgg_titanx.csv", "nexus/", "latency_ms", ""},
}

// readProfiles reads the three sources.
func readProfiles(folder string) (profiles, error) {
	measured := map[string]map[int]float64{} // by model and batch
	for _, source := range sources {
		t, err := csvfile.OpenTable(filepath.Join(folder, "dnn-profiles", source.file))
		if err != nil {
			return nil, fmt.Errorf("opening measurements (-data or INFERPLAN_DATA): %w", err)
		}
		err = t.EachRow(func() error {
			if t.Text("accel") != source.device || t.Text(source.times) == "" {
				return nil
			}
			model := source.name + strings.TrimSuffix(t.Text("model"), "_checkpoint_150epochs")
			if measured[model] == nil {
				measured[model] = map[int]float64{}
			}
			measured[model][t.WholeNumber("batch", 1, math.MaxInt32)] = t.Number(source.times, 0, math.MaxFloat64)
			return nil
		})
		if err = errors.Join(err, t.Close()); err != nil {
			return nil, err
		}
	}
	times := profiles{}
	for model, byBatch := range measured {
		times[model] = interpolated(byBatch)
	}
	return times, nil
}

// interpolated returns the time of every batch up to 32, or up to the largest that was measured. It is linear between measured batches, and never
// less than that of a smaller batch.
func interpolated(measured map[int]float64) (ms []float64) {
	sizes := slices.Sorted(maps.Keys(measured))
	for i, size := range sizes[1:] {
		measured[size] = max(measured[size], measured[sizes[i]])
	}
	for size := 1; size <= min(32, sizes[len(sizes)-1]); size++ {
		i, exact := slices.BinarySearch(sizes, size)
		if exact || i == 0 {
			ms = append(ms, measured[sizes[i]])
			continue
		}
		before, behind := measured[sizes[i-1]], measured[sizes[i]]
		share := float64(size-sizes[i-1]) / float64(sizes[i]-sizes[i-1])
		ms = append(ms, before+share*(behind-before))
	}
	return ms
}

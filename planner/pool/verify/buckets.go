package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"inferplan/formats"
	"inferplan/formats/arrivals"
	"inferplan/planner/kind"
)

// minShare is the least share of a model's requests that a bucket is planned for. The same share of requests may
// be longer than the largest bucket.
const minShare = 1e-6

// ReplaceByBuckets replaces models of the workload by their length buckets: the same model measured at several
// input lengths, each a model of its own in the profile. A bucket gets the part of the rate that the lengths of
// the requests give. It returns the assumptions made, for the user. A workload that names buckets itself stays as
// it is.
func ReplaceByBuckets(d *kind.Documents) (assumptions []string, err error) {
	models := formats.ModelsOf(d.Workload)
	if d.Profile == nil || models == nil {
		return nil, nil
	}
	var plannedModels formats.WorkloadModels
	for i := range models {
		m := &models[i]
		path := fmt.Sprintf("models[%d].lengths", i)
		buckets := d.Profile.BucketsOf(m.Model)

		// A model without buckets stays as it is.
		if len(buckets) == 0 || d.Profile.FindModel(m.Model) != nil {
			if m.Lengths != nil {
				return nil, d.FieldError("workload", path, "lengths", "none: the profile has "+m.Model+" at one size",
					"plan profile --shape INPUT=1x32:1x128:1x512 measures a model at several")
			}
			plannedModels = append(plannedModels, *m)
			continue
		}

		// Replace the model by its buckets, each with its share of the rates.
		shares, err := bucketShares(d, m, buckets, path)
		if err != nil {
			return nil, err
		}
		var shareTexts []string
		for k, b := range buckets {
			if shares[k] == 0 {
				continue
			}
			bucketModel := *m
			bucketModel.Model, bucketModel.Lengths = b.Model, nil
			bucketModel.Weight = cmp.Or(m.Weight, 1) * shares[k]
			bucketModel.MinRPS, bucketModel.BatchBuildRPS = m.MinRPS*shares[k], m.BatchBuildRPS*shares[k]
			plannedModels = append(plannedModels, bucketModel)
			shareTexts = append(shareTexts, fmt.Sprintf("%.3g %% in %s", 100*shares[k], b.Model))
		}
		basis := "by the lengths of the workload"
		if m.Lengths == nil {
			basis = "each bucket alike: the workload names no lengths"
		}
		assumptions = append(assumptions, fmt.Sprintf("requests for %s: %s (%s)", m.Key(), strings.Join(shareTexts, ", "), basis))
	}
	workload := *d.Workload
	workload.Section = plannedModels
	d.Workload = &workload
	return assumptions, nil
}

// bucketShares returns the parts of a model's requests that run in each of its buckets, which are sorted by
// length. Without lengths in the workload all are equal. path is where the lengths stand, for errors.
func bucketShares(d *kind.Documents, m *formats.WorkloadModel, buckets []*formats.ProfileModel, path string) ([]float64, error) {
	shares := make([]float64, len(buckets))
	if m.Lengths == nil {
		for k := range shares {
			shares[k] = 1 / float64(len(shares))
		}
		return shares, nil
	}
	var sizes []string

	// Each bucket takes the requests longer than the bucket before, up to its own length. If inputs are not
	// padded, it takes only those of exactly its length.
	shareSoFar, unpaddedShare := 0.0, 0.0
	for k, b := range buckets {
		length := formats.BucketLength(b.Inputs)
		if length == 0 {
			return nil, d.FieldError("workload", path, "lengths", "none: the buckets of "+m.Model+" differ in more than a length",
				"name the buckets as models, each with its weight: "+b.Model)
		}
		sizes = append(sizes, fmt.Sprint(length))
		shareUpTo, lower := arrivals.ShareUpTo(m.Lengths, length), shareSoFar
		if b.Bucket.Padding == nil {
			lower = arrivals.ShareUpTo(m.Lengths, length-1)
			unpaddedShare += lower - shareSoFar // requests longer than the bucket before and shorter than this one
		}
		shares[k], shareSoFar = max(shareUpTo-lower, 0), max(shareUpTo, shareSoFar)
	}

	// Refuse lengths that no bucket takes.
	sizeList := strings.Join(sizes, ", ")
	if unpaddedShare > minShare {
		return nil, d.FieldError("workload", path, fmt.Sprintf("%.3g %% of the requests between the sizes %s", 100*unpaddedShare, sizeList), "these sizes alone",
			"the profile does not show that answers stay the same where a request is filled up (an input with mask in its name): measure the sizes that requests have")
	}
	if longerShare := 1 - shareSoFar; longerShare > minShare {
		return nil, d.FieldError("workload", path, fmt.Sprintf("%.3g %% of the requests longer than the largest size, %s", 100*longerShare, sizes[len(sizes)-1]), "lengths up to it",
			"measure a larger size (plan profile --shape), or write max: "+sizes[len(sizes)-1]+" where clients cut what is longer")
	}

	// Plan at least a little for every bucket that has requests, so that each is served.
	for k := range shares {
		if shares[k] > 0 {
			shares[k] = max(shares[k], minShare)
		}
	}
	if !slices.ContainsFunc(shares, func(s float64) bool { return s > 0 }) {
		return nil, d.FieldError("workload", path, "no request in any size", "lengths within "+sizeList, "")
	}
	return shares, nil
}

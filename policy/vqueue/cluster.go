package vqueue

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
)

// RequestFeatures are the properties of a request by which groups are formed (definition 4.1).
type RequestFeatures struct {
	Model     int32
	Priority  int32
	SLO       float64 // seconds from the arrival
	Prompt    float64 // tokens of the prompt
	Output    float64 // tokens expected of the answer
	ArrivedAt float64 // seconds on the clock of Deadline
	Deadline  float64 // seconds
}

// ClusterOptions steer the forming of clusters.
type ClusterOptions struct {
	// MaxClusters is the largest number of clusters per model, without those of mega prompts; 0 means 8.
	MaxClusters int
	// MegaFactor is the number of tokens, prompt and output, relative to the model's median from which on a
	// request is a mega prompt; 0 means 8. Mega prompts form clusters of their own, because everything behind one
	// of them waits.
	MegaFactor float64
}

// point is a request in the space of clusters: the logarithms of SLO, prompt and output.
type point [3]float64

// pointOf returns a request's point in the space in which requests are clustered: the logarithms of its SLO, prompt and expected output.
func pointOf(request *RequestFeatures) point {
	return point{math.Log(max(request.SLO, 1e-3)), math.Log1p(max(request.Prompt, 0)), math.Log1p(max(request.Output, 0))}
}

// squaredDistance returns the squared Euclidean distance of two points.
func (a point) squaredDistance(other point) float64 {
	sum := 0.0
	for dimension := range a {
		sum += (a[dimension] - other[dimension]) * (a[dimension] - other[dimension])
	}
	return sum
}

// clusterCentre is a cluster: its centre, and the properties that all its requests share.
type clusterCentre struct {
	model, priority int32
	isMegaPrompt    bool // its requests are mega prompts, many times longer than the median of the model
	position        point
}

// Clusters divide requests into kinds: of one model and priority, similar in SLO and lengths. A cluster is an index in centres.
type Clusters struct {
	centres     []clusterCentre
	firstCentre []int32   // by model: index of its first centre; one more entry at the end
	megaTokens  []float64 // by model: tokens, prompt and output, from which on a request is a mega prompt
}

// spreadGoal is the spread within clusters, as a mean square of logarithms, below which no further clusters are
// made.
const spreadGoal = 0.05

// NewClusters returns clusters of a sample of requests, formed by k-means++ separately for each model and priority.
// Mega prompts, which are MegaFactor times longer than the median of their model (8 by default), form clusters of their own.
// It returns an error for an empty sample or a model outside 0 to models-1.
func NewClusters(sample []RequestFeatures, models int, options ClusterOptions, rng *rand.Rand) (*Clusters, error) {
	if len(sample) == 0 {
		return nil, errors.New("forming clusters: found no requests")
	}
	if options.MaxClusters == 0 {
		options.MaxClusters = 8
	}
	if options.MegaFactor == 0 {
		options.MegaFactor = 8
	}

	// Divide the sample by model.
	byModel := make([][]int32, models)
	for i := range sample {
		model := sample[i].Model
		if model < 0 || int(model) >= models {
			return nil, errors.New("forming clusters: a request of an unknown model")
		}
		byModel[model] = append(byModel[model], int32(i))
	}

	// Add the clusters of each model. firstCentre gets one more entry, so that the centres of a model end where those of the next begin.
	clusters := &Clusters{megaTokens: make([]float64, models)}
	for model, members := range byModel {
		clusters.firstCentre = append(clusters.firstCentre, int32(len(clusters.centres)))
		clusters.megaTokens[model] = math.Inf(1) // a model without requests has no mega prompts
		if len(members) > 0 {
			clusters.addModel(sample, members, options, rng)
		}
	}
	clusters.firstCentre = append(clusters.firstCentre, int32(len(clusters.centres)))
	return clusters, nil
}

// addModel adds the clusters of one model. members are the indexes in the sample of its requests, which it sorts.
// They are divided by priority and by whether they are mega prompts (many times longer than the median of the model), and each part is
// clustered by k-means.
func (c *Clusters) addModel(sample []RequestFeatures, members []int32, options ClusterOptions, rng *rand.Rand) {
	// Find the size of a mega prompt: MegaFactor times the median, but at least MegaFactor tokens.
	tokens := make([]float64, len(members))
	for memberIndex, requestIndex := range members {
		tokens[memberIndex] = sample[requestIndex].Prompt + sample[requestIndex].Output
	}
	slices.Sort(tokens)
	c.megaTokens[sample[members[0]].Model] = options.MegaFactor * max(tokens[len(tokens)/2], 1)

	// Form clusters of each run of members with the same priority and size class (mega prompts or not).
	compareKinds := func(indexA, indexB int32) int {
		return cmp.Or(cmp.Compare(sample[indexA].Priority, sample[indexB].Priority), cmp.Compare(c.megaRank(&sample[indexA]), c.megaRank(&sample[indexB])))
	}
	slices.SortStableFunc(members, compareKinds)
	for len(members) > 0 {
		runLength := 1
		for runLength < len(members) && compareKinds(members[runLength], members[0]) == 0 {
			runLength++
		}
		c.addClusters(sample, members[:runLength], options.MaxClusters, rng)
		members = members[runLength:]
	}
}

// isMegaPrompt reports whether a request is a mega prompt, many times longer than the median of its model.
func (c *Clusters) isMegaPrompt(request *RequestFeatures) bool {
	return request.Prompt+request.Output >= c.megaTokens[request.Model]
}

// megaRank returns 1 for a mega prompt (a request many times longer than the median of its model), else 0, for sorting.
func (c *Clusters) megaRank(request *RequestFeatures) int {
	if c.isMegaPrompt(request) {
		return 1
	}
	return 0
}

// addClusters adds clusters of the requests of a sample that members names by index and that share model, priority and size class (all are
// mega prompts, many times longer than the median, or none is): the smallest number of clusters whose spread, the mean squared distance of
// requests to their centre, is below spreadGoal, and at most maxClusters. It is called once for each of these parts of the sample.
func (c *Clusters) addClusters(sample []RequestFeatures, members []int32, maxClusters int, rng *rand.Rand) {
	points := make([]point, len(members))
	for memberIndex, requestIndex := range members {
		points[memberIndex] = pointOf(&sample[requestIndex])
	}

	// Raise the number of clusters until their spread is small.
	var centres []point
	for clusterCount := 1; clusterCount <= min(maxClusters, len(points)); clusterCount++ {
		var spread float64
		centres, spread = kMeans(points, clusterCount, rng)
		if spread < spreadGoal {
			break
		}
	}

	// Sort the centres, so that their numbers do not depend on the random start. All members share what the first one has.
	slices.SortFunc(centres, func(centreA, centreB point) int { return slices.Compare(centreA[:], centreB[:]) })
	firstRequest := &sample[members[0]]
	for _, centre := range centres {
		c.centres = append(c.centres, clusterCentre{firstRequest.Model, firstRequest.Priority, c.isMegaPrompt(firstRequest), centre})
	}
}

// k-means ends when a round improves the mean squared distance by less than minKMeansGain. maxKMeansRounds is many more than it usually takes.
const (
	minKMeansGain   = 1e-9
	maxKMeansRounds = 50
)

// kMeans returns clusterCount centres of points by k-means++ (Arthur and Vassilvitskii, 2007), and the mean squared distance of the points
// to them. It ends when a round improves the distance by less than minKMeansGain, or after maxKMeansRounds.
func kMeans(points []point, clusterCount int, rng *rand.Rand) ([]point, float64) {
	centres, meanDistance := chooseCentres(points, clusterCount, rng), math.Inf(1)
	for range maxKMeansRounds {
		distance := moveCentres(points, centres)
		if meanDistance-distance < minKMeansGain {
			return centres, distance
		}
		meanDistance = distance
	}
	return centres, meanDistance
}

// chooseCentres returns up to clusterCount different points as the first centres of k-means++: each at random, with a probability
// proportional to its squared distance from the nearest of the others.
func chooseCentres(points []point, clusterCount int, rng *rand.Rand) []point {
	centres := []point{points[rng.IntN(len(points))]}
	nearestDistances := make([]float64, len(points))
	for i := range nearestDistances {
		nearestDistances[i] = math.Inf(1)
	}
	for len(centres) < clusterCount {
		// Measure every point's squared distance to the nearest centre.
		sum := 0.0
		for i := range points {
			nearestDistances[i] = min(nearestDistances[i], points[i].squaredDistance(centres[len(centres)-1]))
			sum += nearestDistances[i]
		}
		if sum == 0 {
			break // every point is a centre already
		}

		// Draw the next centre in proportion to these.
		nextIndex, remainingMass := len(points)-1, rng.Float64()*sum
		for i := range points {
			remainingMass -= nearestDistances[i]
			if remainingMass < 0 {
				nextIndex = i
				break
			}
		}
		centres = append(centres, points[nextIndex])
	}
	return centres
}

// moveCentres moves each centre to the mean of the points that are nearest to it.
// It returns the mean squared distance of the points to the centres before the move.
func moveCentres(points, centres []point) float64 {
	// Sum up the points by their nearest centre.
	sums, counts, sumDistance := make([]point, len(centres)), make([]float64, len(centres)), 0.0
	for pointIndex := range points {
		nearestCentre, distance := nearestOf(centres, points[pointIndex])
		sumDistance += distance
		counts[nearestCentre]++
		for dimension := range points[pointIndex] {
			sums[nearestCentre][dimension] += points[pointIndex][dimension]
		}
	}

	// A centre without points stays.
	for centre := range centres {
		for dimension := range centres[centre] {
			if counts[centre] > 0 {
				centres[centre][dimension] = sums[centre][dimension] / counts[centre]
			}
		}
	}
	return sumDistance / float64(len(points))
}

// nearestOf returns the index of the centre that is nearest to a target point, and its squared distance.
func nearestOf(centres []point, target point) (nearest int, distance float64) {
	distance = math.Inf(1)
	for centre := range centres {
		if centreDistance := centres[centre].squaredDistance(target); centreDistance < distance {
			nearest, distance = centre, centreDistance
		}
	}
	return nearest, distance
}

// Distances that count for a cluster of another priority, and of another size class.
const (
	priorityMismatch = 1e6
	sizeMismatch     = 1e3
)

// ClusterOf returns the cluster to which a request belongs: the nearest of its model.
// A cluster of the same priority is preferred, then one of the same size class (mega prompt or not).
// If the sample had no requests of the model, it returns -1. Distances of features are far below 1e3, so that the added sizeMismatch and
// priorityMismatch rank the size class and the priority above all distances.
func (c *Clusters) ClusterOf(request *RequestFeatures) int32 {
	// The centres of a model stand together in the list: firstCentre is by model.
	nearest, leastDistance := int32(-1), math.Inf(1)
	isMegaPrompt, position := c.isMegaPrompt(request), pointOf(request)
	for cluster := c.firstCentre[request.Model]; cluster < c.firstCentre[request.Model+1]; cluster++ {
		centre := &c.centres[cluster]
		distance := centre.position.squaredDistance(position)
		if centre.priority != request.Priority {
			distance += priorityMismatch
		}
		if centre.isMegaPrompt != isMegaPrompt {
			distance += sizeMismatch
		}
		if distance < leastDistance {
			nearest, leastDistance = cluster, distance
		}
	}
	return nearest
}

// IsMega reports whether a cluster consists of mega prompts, requests many times longer than the median of their model.
func (c *Clusters) IsMega(cluster int32) bool { return c.centres[cluster].isMegaPrompt }

// MemberOrder is the order of a group's members.
type MemberOrder uint8

const (
	// ByArrival is first come, first served, as in the paper.
	ByArrival MemberOrder = iota
	// ByDeadline serves the earliest deadline first.
	ByDeadline
)

// FormGroups divides requests into request groups and returns, by group, the indexes of its requests in the order of service.
// The requests of a cluster, in the given order, are cut into pieces of equal size of at most limit(model) requests: the paper's delta
// times the batch (Algorithm 1).
func (c *Clusters) FormGroups(requests []RequestFeatures, memberOrder MemberOrder, limit func(model int32) int) [][]int32 {
	byCluster := make([][]int32, len(c.centres))
	for index := range requests {
		if cluster := c.ClusterOf(&requests[index]); cluster >= 0 {
			byCluster[cluster] = append(byCluster[cluster], int32(index))
		}
	}

	// Sort each cluster by the order of its members.
	var groups [][]int32
	for cluster, members := range byCluster {
		if len(members) == 0 {
			continue
		}
		slices.SortStableFunc(members, func(indexA, indexB int32) int {
			if memberOrder == ByDeadline {
				return cmp.Compare(requests[indexA].Deadline, requests[indexB].Deadline)
			}
			return cmp.Compare(requests[indexA].ArrivedAt, requests[indexB].ArrivedAt)
		})

		// Cut it into pieces whose sizes differ by at most one.
		maxMembers := max(limit(c.centres[cluster].model), 1)
		pieces := (len(members) + maxMembers - 1) / maxMembers
		for index := range pieces {
			groups = append(groups, members[index*len(members)/pieces:(index+1)*len(members)/pieces])
		}
	}
	return groups
}

// QuantileDeadlines returns what Group.Deadline needs, given the deadlines of the group's members in the order of service: those at the
// quantiles of that order.
func QuantileDeadlines(deadlines []float64) (out [Quantiles]float64) {
	for quantile := range out {
		out[quantile] = deadlines[min(int(memberQuantiles[quantile]*float64(len(deadlines))), len(deadlines)-1)]
	}
	return out
}

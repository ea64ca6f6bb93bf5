package relaxation

import (
	"math"

	"inferplan/planner/pool/templates"
	"inferplan/planner/stages"
)

// maxLossReplicas is the number of replica counts of each stage that TemplateLoss tries.
const maxLossReplicas = 24

// TemplateLoss returns the loss of template t: the least distance of a plan that uses it from the bound of the
// relaxation, whose solution is given. It is in units, as throughput is counted (templates.Units). With θ the
// throughput of a plan, every plan has
//
//	θ <= bound - Σ loss over its templates
//
// because whole replicas of t cost, at the prices of the relaxation, so much more than the rate that they carry is
// worth:
//
//	loss_t = min over integer g >= 1 of  Σ_s π_k(s) g_s / v_s - λ_d min_s X_s g_s
//
// with g_s replicas of stage s on a share 1/v_s of a device of pool k(s), X_s the rate of each, π_k the price of a
// device and λ_d the worth of the model's rate. Devices are priced by the parts that replicas take of them. Rounding
// up to whole devices only adds to the loss. If not even one replica of each stage fits, the loss is +Inf. If all
// stages are on time-shared pools, where no replicas round up, it is 0. A search leaves out templates of which the
// loss brings every plan that uses them below its best one.
func TemplateLoss(c *templates.Catalogue, t *stages.Template, solved *Solution) float64 {
	// The minimum lies at a rate, in units, at which the replica count of some stage must grow. lossAt tries one rate, up to
	// maxUnits, which the template carries with all devices.
	rateDual := solved.RateDual[t.Model]
	unitRPS := c.Units.ModelRPS[t.Model]
	maxUnits := c.Problem.MaxRate(t) / unitRPS
	exclusive, onTimeShared := false, false
	minLoss, lastRate := math.Inf(1), math.Inf(1) // lastRate: up to it all rates were tried; +Inf if all up to maxUnits
	lossAt := func(units float64) { minLoss = min(minLoss, replicaPrice(c, t, solved, units, unitRPS)-rateDual*units) }

	// If a stage is on a time-shared pool, try nearly no rate and the highest one.
	for i := range t.Stages {
		if !c.Problem.Pools[t.Stages[i].Pool].TimeShared {
			continue
		}
		// The cost of a time-shared stage grows with every request. So the least loss may lie just after the next replica
		// of another stage has begun: the first with nearly no rate, the others below. From there to the next beginning it
		// grows or falls steadily, so beside these rates only the last one before, and maxUnits, can have the least loss.
		onTimeShared = true
		lossAt(maxUnits * 1e-6)
		lossAt(maxUnits)
		break
	}

	// Try the rates of 1, 2, ... replicas of each stage on an exclusive pool.
	for i := range t.Stages {
		if c.Problem.Pools[t.Stages[i].Pool].TimeShared {
			continue
		}
		exclusive = true
		for replicas := 1; replicas <= maxLossReplicas; replicas++ {
			units := t.Stages[i].Rate * float64(replicas) / unitRPS
			if units > maxUnits*(1+1e-9) {
				break
			}
			lossAt(units)
			if onTimeShared { // just after the next replica has begun
				lossAt(min(units*(1+1e-7), maxUnits))
			}
			if replicas == maxLossReplicas {
				lastRate = min(lastRate, units)
			}
		}
	}
	if !exclusive {
		return 0
	}
	if !math.IsInf(lastRate, 1) {
		// Beyond the rates that were tried, the loss grows at least in proportion to the rate.
		minLoss = min(minLoss, (c.UnitCost(t, solved.PoolPrice)-rateDual)*lastRate)
	}
	if math.IsInf(minLoss, 1) {
		return minLoss // not even one replica of each stage fits
	}
	return max(minLoss, 0)
}

// replicaPrice returns the price of the replicas of template t that carry so many units of its model's rate, at the
// prices of the relaxation, which are in units of throughput. Replicas are whole on exclusive pools, and fractions of the
// devices' time on time-shared ones. unitRPS is the number of requests/s in a unit of the model's rate.
func replicaPrice(c *templates.Catalogue, t *stages.Template, solved *Solution, units, unitRPS float64) float64 {
	price := 0.0
	for i := range t.Stages {
		s := &t.Stages[i]
		replicas := units * unitRPS / s.Rate
		if !c.Problem.Pools[s.Pool].TimeShared {
			replicas = math.Ceil(replicas - 1e-9)
		}
		// PoolPrice is of all devices of the pool together, which hold s.Share replicas each.
		poolReplicas := s.Share * c.Problem.Pools[s.Pool].Count
		price += solved.PoolPrice[s.Pool] * replicas / float64(poolReplicas)
	}
	return price
}

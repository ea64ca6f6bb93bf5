package gear

// Config is a number of devices of a kind that hold the same models and stages.
type Config struct {
	Kind     int    // index of the kind
	ModelSet uint32 // bits of the models, and above them of stages of chains
	Count    int    // number of devices
}

// devicesWith returns the devices of a kind that hold a model or stage, by its bit. Devices are numbered within
// their kind, config by config.
func devicesWith(configs []Config, kind, model int) (list []int) {
	firstDevice := 0
	for _, c := range configsOfKind(configs, kind) {
		for n := range c.Count {
			if c.ModelSet&(1<<model) != 0 {
				list = append(list, firstDevice+n)
			}
		}
		firstDevice += c.Count
	}
	return list
}

// Replicas returns the devices of a kind that hold a model whole.
func (plan *Outcome) Replicas(model, kind int) []int { return devicesWith(plan.Configs, kind, model) }

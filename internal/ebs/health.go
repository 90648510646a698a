package ebs

// Severity says what a condition of a volume means for who uses it.
type Severity int

// The severities, from bad to worse.
const (
	// Degraded: the volume can be used, not as well as it should.
	Degraded Severity = iota + 1
	// Inaccessible: the volume cannot be used now.
	Inaccessible
	// DataLoss: what the volume held is gone for good.
	DataLoss
)

// Condition is one way in which a volume is not well.
type Condition struct {
	Severity Severity
	Reason   string // CamelCase, one a condition
	Message  string
}

// Health is what is wrong with a volume; nothing where it is well.
type Health struct {
	Volume     VolumeID
	Conditions []Condition
}

// HealthPage is one page of the volumes that are not well.
type HealthPage struct {
	Volumes   []Health
	NextToken string // empty: the last page
}

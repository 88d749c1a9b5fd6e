"""The Triton kernel of `fused`, apart because it can only be read where triton is installed."""

import triton
import triton.language as tl

ROUNDS = tl.constexpr(7)  # of Philox; passes the statistical batteries, a third cheaper than ten


@triton.jit
def _decay_integral(x):  # type: ignore[no-untyped-def]
    """(1 − e^{−x}) / x, by its series near 0."""
    series = 1.0 - x / 2 * (1.0 - x / 3 * (1.0 - x / 4 * (1.0 - x / 5 * (1.0 - x / 6 * (1.0 - x / 7)))))
    small = tl.abs(x) < 0.25
    return tl.where(small, series, (1.0 - tl.exp(-x)) / tl.where(small, 1.0, x))


@triton.jit
def _quarter(  # type: ignore[no-untyped-def]
    theta,
    gradient,
    momentum,
    thermostat,
    masses,
    given_noise,
    eta,
    inside,
    place,
    size,
    h,
    mass,
    temperature,
    rate,
    level,
    inverse_c,
    scale,
    thermostated: tl.constexpr,
    adaptive: tl.constexpr,
    hyperbolic: tl.constexpr,
    weighted: tl.constexpr,
    noisy: tl.constexpr,
    given: tl.constexpr,
):
    """The step of `LANES` coordinates: momentum (P), drift (A), thermostat (D)."""
    mask = inside < size
    p = tl.load(momentum + place, mask=mask, other=0.0)
    g = tl.load(gradient + inside, mask=mask, other=0.0) * scale
    position = tl.load(theta + inside, mask=mask, other=0.0)
    if thermostated:  # noqa: SIM108
        xi = tl.load(thermostat + place, mask=mask, other=0.0)
    else:
        xi = tl.zeros_like(p)
    if weighted:
        mass = tl.load(masses + place, mask=mask, other=1.0)
    inverse_mass = 1.0 / mass
    inverse_mc = inverse_c * inverse_mass
    if adaptive:  # noqa: SIM108
        alpha = tl.maximum(level - xi, 0.0)
    else:
        alpha = tl.zeros_like(p) + level
    x = (alpha + xi) * h
    if hyperbolic:
        z = p * inverse_mc
        x = x / tl.sqrt(1.0 + z * z)
    decay, integral = tl.exp(-x), _decay_integral(x)
    p = decay * p - h * integral * g
    if noisy:
        if given:
            eta = tl.load(given_noise + place, mask=mask, other=0.0)
        # 1 − e^{−2x} = (1 − e^{−x})(1 + e^{−x})
        p += tl.sqrt(h * mass * temperature * alpha * integral * (1.0 + decay)) * eta
    v = p * inverse_mass
    curvature = 1.0
    if hyperbolic:
        z = p * inverse_mc
        slowing = tl.rsqrt(1.0 + z * z)
        v = v * slowing
        curvature = slowing * slowing * slowing
    tl.store(momentum + place, p, mask=mask)
    tl.store(theta + inside, position + h * v, mask=mask)
    if thermostated and noisy:
        excess = mass * v * v - temperature * curvature
        tl.store(thermostat + place, xi + rate * h * excess, mask=mask)


@triton.jit(do_not_specialize=["key"])
def sampler_kernel(  # type: ignore[no-untyped-def]
    programs,
    sizes,
    thetas,
    gradients,
    momentum,
    thermostat,
    masses,
    given_noise,
    found,
    grad_scale,
    counter,
    key,
    h,
    mass,
    temperature,
    rate,
    level,
    inverse_c,
    num_data,
    thermostated: tl.constexpr,
    adaptive: tl.constexpr,
    hyperbolic: tl.constexpr,
    weighted: tl.constexpr,
    noisy: tl.constexpr,
    given: tl.constexpr,
    skips: tl.constexpr,
    scaled: tl.constexpr,
    capturable: tl.constexpr,
    steered: tl.constexpr,
    lanes: tl.constexpr,
):
    """One program for each 4 · lanes coordinates of one tensor, four quarters by one Philox call.

    capturable: `gradients` is one vector, and the number of the step comes from `counter`; steered: `h` is an address.
    """
    row = programs + 3 * tl.program_id(0)
    owner = tl.load(row)
    inside = tl.load(row + 1) + tl.arange(0, lanes)
    place = tl.load(row + 2) + tl.arange(0, lanes)
    size = tl.load(sizes + owner)
    if skips:
        size = tl.where(tl.load(found) != 0, 0, size)  # nothing is read or written
    theta = tl.load(thetas + owner).to(tl.pointer_type(tl.float32))
    if capturable:
        gradient = gradients + (tl.load(row + 2) - tl.load(row + 1))
        key = key + (tl.load(counter) & 0xFFFFFFFF)
    else:
        gradient = tl.load(gradients + owner).to(tl.pointer_type(tl.float32))
    if steered:
        h = tl.load(h).to(tl.float32)
    scale = num_data
    if scaled:
        scale = num_data / tl.load(grad_scale)
    if noisy and not given:
        # a program of k coordinates uses the counters place … place + min(k, lanes) − 1: none is used twice
        n0, n1, n2, n3 = tl.randn4x(key, place.to(tl.uint32), ROUNDS)
    else:
        n0 = tl.zeros([lanes], tl.float32)
        n1, n2, n3 = n0, n0, n0
    for quarter in tl.static_range(4):
        if quarter == 0:
            eta = n0
        elif quarter == 1:
            eta = n1
        elif quarter == 2:
            eta = n2
        else:
            eta = n3
        _quarter(
            theta,
            gradient,
            momentum,
            thermostat,
            masses,
            given_noise,
            eta,
            inside + quarter * lanes,
            place + quarter * lanes,
            size,
            h,
            mass,
            temperature,
            rate,
            level,
            inverse_c,
            scale,
            thermostated,
            adaptive,
            hyperbolic,
            weighted,
            noisy,
            given,
        )

// Debian 12 has Catch2 2.13; its header path is hidden here.
#pragma once
#include <catch2/catch.hpp>

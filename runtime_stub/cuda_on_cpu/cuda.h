// Stand-in for the driver API's header: nothing of it is used where there is no GPU.
#pragma once
